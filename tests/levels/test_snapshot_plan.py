"""`cede snapshot | cede plan -` is what the server does next: now, at its next timer, and after it
was killed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from cede import Client
from tests.client.serving import BIN, Serving, eventually
from tests.levels.level import InPython, Json, OnCommandLine

pytestmark = pytest.mark.system

# What a plan decides and what the journal says when it is done.
DONE = ("granted", "preempting")


@pytest.fixture
def client(own_server: Serving) -> Iterator[Client]:
    with own_server.client() as found:
        yield found


def piped(server: Serving, *options: str) -> Json:
    """The plan that a shell's pipe gives."""
    environment = server.environment()
    snapshot = subprocess.Popen([BIN / "cede", "snapshot"], env=environment, stdout=subprocess.PIPE)
    command = [BIN / "cede", "plan", "-", "--json", *options]
    done = subprocess.run(
        command, stdin=snapshot.stdout, env=environment, capture_output=True, check=True, timeout=60
    )
    assert snapshot.stdout is not None
    snapshot.stdout.close()
    assert snapshot.wait(60) == 0
    found: Json = json.loads(done.stdout)
    return found


def shared_pool(client: Client, pool: str, gpus: int, **settings: float) -> None:
    """Red may borrow what is reserved for blue."""
    client.pools.create(pool, {"gpu": gpus}, settings=settings)
    for team, reserved in (("red", 0), ("blue", gpus)):
        client.policies.attach(
            pool, team, component_type="team", priority=10, reserved={"gpu": reserved}
        )


def ask(client: Client, team: str, pool: str, gpus: int, **more: Any) -> Json:
    body = {"component": team, "component_type": "team", "pool": pool, "resources": {"gpu": gpus}}
    return client.requests.create({**body, "lease": "none", **more})


def decided(plan: Json) -> list[tuple[str, str]]:
    """What the last pass of a plan does, in the words of the journal."""
    did = []
    for each in plan["passes"][-1]["decisions"]:
        if each["do"] == "grant":
            did.append(("granted", each["request"]))
        did += [("preempting", victim) for victim in each.get("victims", ())]
    return did


def happened(client: Client, after: int) -> list[tuple[str, str]]:
    events = client.events(after=after)
    return [(each["kind"], each["request_id"]) for each in events if each["kind"] in DONE]


def last_index(client: Client) -> int:
    return max(each["index"] for each in client.events())


def test_the_plan_of_a_preemption_under_way_survives_a_kill(
    own_server: Serving, client: Client
) -> None:
    shared_pool(client, "gpus", 4, grace=300)
    victims = [ask(client, "red", "gpus", 2, lease=600, walltime=900) for _ in range(2)]
    owner = ask(client, "blue", "gpus", 2)
    behind = ask(client, "blue", "gpus", 3)
    late = ask(client, "red", "gpus", 1, lease=600)
    snapshot, plan = client.snapshot(), piped(own_server)
    waiting = {e["request"]: e["reason"] for e in plan["passes"][0]["decisions"]}
    assert set(waiting) == {owner["id"], behind["id"], late["id"]}  # nothing but waiting is left
    for request_id, reason in waiting.items():
        told = client.requests.why(request_id)["reason"]
        assert {**told, **reason} == told
    assert plan["at_rest"] and plan["next_timer"] is not None
    assert {**client.plan(snapshot), "passes": []} == {**plan, "passes": []}

    own_server.kill()
    own_server.start()
    assert {**client.snapshot(), "now": 0} == {**snapshot, "now": 0}
    again = piped(own_server)
    assert again["passes"][0]["decisions"] == plan["passes"][0]["decisions"]
    assert {**again, "passes": []} == {**plan, "passes": []}

    foretold = [
        (each["do"], each["request"])
        for one in piped(own_server, "--until-rest")["passes"]
        for each in one["decisions"]
        if each["do"] == "grant"
    ]
    index = last_index(client)
    stopping = [
        each for each in victims if client.requests.get(each["id"])["status"] != "allocated"
    ]
    for each in stopping:
        client.requests.release(each["id"], outcome="stopped")
    granted = [request for kind, request in happened(client, index) if kind == "granted"]
    assert granted and [request for _, request in foretold][: len(granted)] == granted


def test_what_is_due_next_is_foretold(own_server: Serving, client: Client) -> None:
    """A lease runs out, patience ends, a retry is due, a victim's deadline passes."""
    shared_pool(client, "patient", 2, reclaim_min_run=3, grace=1)
    shared_pool(client, "silent", 2)
    shared_pool(client, "retried", 2)
    borrower = ask(client, "red", "patient", 2, lease=4)
    owner = ask(client, "blue", "patient", 2)
    ask(client, "red", "silent", 2, lease=1)
    waiters = [ask(client, "red", "silent", 1) for _ in range(2)]
    failing = ask(client, "red", "retried", 2, retry={"max_retries": 1, "delay": 6})
    client.requests.release(failing["id"], outcome="failed")

    expected = [
        [("granted", each["id"]) for each in waiters],
        [("preempting", borrower["id"])],
        [("granted", failing["id"])],
        [("granted", owner["id"])],
    ]
    look = OnCommandLine(own_server)
    for due in expected:
        index, snapshot = last_index(client), look.snapshot()
        at = _plan(look, snapshot)["next_timer"]
        assert at > snapshot["now"]
        assert decided(_plan(look, snapshot)) == []
        assert decided(_plan(look, {**snapshot, "now": at})) == due
        eventually(lambda since=index: happened(client, since))
        assert happened(client, index) == due
        when = {each["at"] for each in client.events(after=index) if each["kind"] in DONE}
        assert min(when) >= at
    look.close()


def _plan(look: OnCommandLine, snapshot: Json) -> Json:
    found: Json = json.loads(look.cede("plan", "-", "--json", input=json.dumps(snapshot)))
    return found


def test_a_snapshot_that_is_edited_says_what_an_edit_would_do(server: Serving) -> None:
    """The plan of the edited snapshot is what the server does once the edit is made."""
    level = InPython(server)
    level.create_pool("gpus", {"gpu": 2})
    level.attach_policy("gpus", "red", "team", {"priority": 1})
    for name in ("first", "second", "third"):
        level.submit(name, "red", "team", {"gpu_count": 2})
    snapshot = level.own_snapshot()
    snapshot["pools"][0]["capacity"]["gpu"] = 4
    foretold = decided(level.client.plan(snapshot))
    index = last_index(level.client)
    level.resize_pool("gpus", {"gpu": 4})
    assert foretold and happened(level.client, index) == foretold
    level.close()

"""What is planned of a snapshot is what the server does next: now, at its next timer, and after it
was killed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from cede import Client
from cede.sim.plan import run
from tests.client.serving import BIN, Serving
from tests.levels.inside import Inside, stop_the_clock
from tests.levels.level import InPython, Json

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
    return done(client.events(after=after))


def done(events: Iterable[Json]) -> list[tuple[str, str]]:
    return [(each["kind"], each["request_id"]) for each in events if each["kind"] in DONE]


def last_index(client: Client) -> int:
    return max(each["index"] for each in client.events())


@pytest.mark.system
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


class Foretold:
    """A server whose clock stands still unless it is moved, and what its plan says comes next."""

    def __init__(self, url: str, patch: pytest.MonkeyPatch) -> None:
        self._move = stop_the_clock(patch)
        self._inside = Inside(url)
        self.close = self._inside.close
        self._read = 0  # the last event that was looked at

    def call(self, path: str, **body: Any) -> Json:
        status, made = self._inside.call("POST", path, body)
        assert status in (200, 201), made
        return dict(made)

    def pool(self, name: str, preset: str = "quota", **settings: float) -> None:
        """Red may borrow what is reserved for blue."""
        self.call("/pools", name=name, capacity={"gpu": 2}, preset=preset, settings=settings)
        for team, reserved in (("red", 0), ("blue", 2)):
            rule = {"priority": 10, "reserved": {"gpu": reserved}}
            self.call("/policies", pool=name, component=team, component_type="team", **rule)

    def ask(self, team: str, pool: str, gpus: int, **more: Any) -> str:
        who = {"component": team, "component_type": "team", "pool": pool, "lease": "none"}
        return str(self.call("/requests", **{**who, "resources": {"gpu": gpus}, **more})["id"])

    def news(self) -> list[tuple[str, str]]:
        """What was done since the last look."""
        events = self._inside.call("GET", f"/events?after={self._read}&limit=500")[1]
        self._read = events["next"]
        return done(events["items"])

    def next(self) -> list[tuple[str, str]]:
        """Wait for the planned instant. Nothing is done before it, and then what was planned."""
        snapshot = self._inside.call("GET", "/snapshot")[1]
        plan = run(snapshot)
        assert decided(plan) == []
        planned = decided(run({**snapshot, "now": plan["next_timer"]}))
        left = round(1000 * (plan["next_timer"] - snapshot["now"]))
        assert left > 0
        self.pass_time(left - 1)
        assert self.news() == []
        self.pass_time(1)
        assert self.news() == planned
        return planned

    def pass_time(self, milliseconds: int) -> None:
        self._move(milliseconds)
        self._inside.settle()


def test_what_is_due_next_is_foretold(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease runs out, patience ends, a retry is due, a victim's deadline passes."""
    server = Foretold(database_url, monkeypatch)
    server.pool("patient", reclaim_min_run=3, grace=1)
    server.pool("silent")
    server.pool("retried")
    borrower = server.ask("red", "patient", 2, lease=4)
    owner = server.ask("blue", "patient", 2)
    server.ask("red", "silent", 2, lease=1)
    waiters = [server.ask("red", "silent", 1) for _ in range(2)]
    failing = server.ask("red", "retried", 2, retry={"max_retries": 1, "delay": 6})
    server.call(f"/requests/{failing}/release", outcome="failed")
    server.news()
    assert server.next() == [("granted", each) for each in waiters]
    assert server.next() == [("preempting", borrower)]
    assert server.next() == [("granted", failing)]
    assert server.next() == [("granted", owner)]
    server.close()


def test_who_starves_and_when_is_foretold(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan knows for how long somebody has been below its share, whenever the snapshot was made;
    a server that starts anew does not, and is patient again.
    """
    server = Foretold(database_url, monkeypatch)
    server.pool("gpus", "fair_share")
    held = [server.ask("red", "gpus", 1) for _ in range(2)]
    server.ask("blue", "gpus", 1)
    server.news()
    server.pass_time(20_000)
    assert server.next() == [("preempting", held[1])]
    server.close()


@pytest.mark.system
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

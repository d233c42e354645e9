"""Commands that only look: `plan`, `snapshot`, `events`, `why`, and the live line of `run`."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from cede import Client
from cede.cli.commands import cli
from cede.model.ids import short_id
from tests.client.serving import BIN, WAIT_SECONDS, Serving, eventually, two_teams

pytestmark = pytest.mark.system

STATE = """\
now: 0
pools:
  - {name: gpus, capacity: {gpu: 8}}
policies:
  - {pool: gpus, component: red, priority: 10, reserved: {gpu: 4}, limit: {gpu: 8}}
  - {pool: gpus, component: blue, priority: 10, reserved: {gpu: 4}, limit: {gpu: 8}}
running:
  - {id: r1, component: red, resources: {gpu: 8}, pool: gpus}
requests:
  - {id: b1, component: blue, resources: {gpu: 4}}
  - {id: b2, component: blue, resources: {gpu: 40}}
"""
BLUE = {"component": "blue", "component_type": "team", "resources": {"gpu": 2}, "kind": "work"}


def plan(*arguments: str, text: str = STATE) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, ["plan", "-", *arguments], input=text)
    return done.exit_code, done.stdout, done.stderr


def test_a_plan_is_readable() -> None:
    code, out, _ = plan()
    assert code == 0
    assert "request b2: gpu: 40 exceeds the capacity 8 of pool gpus" in out
    assert "beneficiary b1, victims r1" in out and "inside its reserve" in out


def test_a_plan_for_programs() -> None:
    code, out, _ = plan("--json", "--until-rest", "--horizon", "60")
    answer = json.loads(out)
    did = [(each["do"], each.get("request")) for each in answer["passes"][-1]["decisions"]]
    assert (code, answer["at_rest"], answer["loop"]) == (0, True, False)
    assert ("grant", "b1") in did


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("pool: gpus}\nrequests", "pool: nope}\nrequests", "<stdin>:8: running[0].pool: "),
        ("capacity: {gpu: 8}", "capacity: {gpu: -8}", "<stdin>:3: pools[0].capacity"),
        ("now: 0", "now: 0\nnow: 1", "<stdin>:2: the key 'now' is there twice"),
        ("now: 0", "now: 0\nlater: 1", "later"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(old: str, new: str, said: str) -> None:
    code, out, err = plan(text=STATE.replace(old, new))
    assert (code, out) == (1, "")
    assert said in err


def test_a_plan_that_goes_round_in_circles_is_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine promises that none does, so the answer is made up here."""
    looping = {"passes": [], "at_rest": False, "loop": True, "next_timer": None}
    monkeypatch.setattr("cede.sim.plan.run", lambda *_: looping)
    code, _, err = plan()
    assert code == 5
    assert "never comes to rest" in err


def test_a_servers_snapshot_can_be_planned(server: Serving, client: Client) -> None:
    two_teams(client)
    client.requests.create({**BLUE, "resources": {"gpu": 2}})
    client.requests.create({**BLUE, "resources": {"gpu": 1}})
    for form in ("json", "yaml"):
        state = server.cede("snapshot", "-o", form).stdout
        done = server.cede("plan", "-", "--json", input=state)
        decisions = json.loads(done.stdout)["passes"][0]["decisions"]
        assert [each["do"] for each in decisions] == ["wait"]


def test_why_says_who_holds_it_and_what_would_help(server: Serving, client: Client) -> None:
    two_teams(client)
    holder = client.requests.create(BLUE)
    waiter = client.requests.create(
        {"component": "red", "component_type": "team", "resources": {"gpu": 1}, "kind": "work"}
    )
    out = server.cede("why", waiter["id"]).stdout
    assert out.startswith("queued: ") and "fix: " in out
    assert f"held: gpu: 2 by blue {short_id(holder['id'])} (in share)" in out
    assert f"it starts if {short_id(holder['id'])} ends" in out
    assert json.loads(server.cede("why", waiter["id"], "-o", "json").stdout)["pools"]


def test_why_of_a_stopped_one_says_whom_the_engine_weighed(server: Serving, client: Client) -> None:
    two_teams(client)
    client.pools.update("gpus", settings={"price": "checkpoint"})
    red = {"component": "red", "component_type": "team", "resources": {"gpu": 1}, "kind": "work"}
    first, last = client.requests.create(red), client.requests.create(red)
    client.requests.create({**BLUE, "resources": {"gpu": 1}})
    out = server.cede("why", last["id"]).stdout
    assert re.search(rf"weighed: {short_id(last['id'])} at \S+: stopped\n", out)
    assert re.search(rf"weighed: {short_id(first['id'])} at \S+: not needed\n", out)


def test_why_names_the_step_behind_a_request_also_when_it_has_ended(
    server: Serving, client: Client
) -> None:
    two_teams(client)
    labels = {"pipeline": "training", "run": "training-7", "step": "train"}
    made = client.requests.create({**BLUE, "labels": labels})
    named = "pipeline training, run training-7, step train\n"
    assert server.cede("why", made["id"]).stdout.startswith(named)
    client.requests.release(made["id"])
    assert server.cede("why", made["id"]).stdout == f"{named}released\n"


def test_events_are_followed(server: Serving, client: Client) -> None:
    two_teams(client)
    before = max(each["index"] for each in client.events())
    follow = server.start_cede("events", "-f", "--after", before, "-o", "json")
    made = client.requests.create(BLUE)
    lines = [json.loads(follow.stdout.readline()) for _ in range(2)]
    assert [each["kind"] for each in lines] == ["submitted", "granted"]
    assert {each["request_id"] for each in lines} == {made["id"]}
    follow.send_signal(signal.SIGINT)
    assert follow.wait(WAIT_SECONDS) == 130
    out = server.cede("events", "--after", before).stdout
    assert "granted" in out and short_id(made["id"]) in out
    # A time of day: local for people, with a zone for programs.
    created = datetime.fromisoformat(made["created"])
    told = datetime.fromisoformat(lines[0]["time"])
    assert abs((told - created).total_seconds()) < 5
    assert told.astimezone().strftime("  %Y-%m-%d %H:%M:%S  submitted") in out


def test_on_a_terminal_one_line_says_why_it_waits(
    server: Serving, client: Client, tmp_path: Path
) -> None:
    two_teams(client)
    client.requests.create(BLUE)
    ours, theirs = pty.openpty()
    red = ["--component", "red", "-t", "team", "--gpu", "1"]
    run = subprocess.Popen(
        [str(BIN / "cede"), "run", *red, "--", "true"],
        env=server.environment(TERM="xterm", COLUMNS="200"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""

    def says_why() -> bool:
        nonlocal seen
        seen += os.read(ours, 4096)
        return b"waiting:" in seen and b"number 1 in the queue" in seen

    try:
        eventually(says_why)
        assert seen.count(b"\n") <= 1
    finally:
        run.terminate()
        assert run.wait(WAIT_SECONDS) == 143
        os.close(ours)


def test_events_of_one_request(server: Serving, client: Client) -> None:
    client.pools.create("one", {"gpu": 1})
    client.policies.attach("one", "green", component_type="team", priority=1)
    work = {"component": "green", "component_type": "team", "lease": "none"}
    first, second = (client.requests.create({**work, "resources": {"gpu": 1}}) for _ in range(2))
    done = server.cede("events", "--request", first["id"], "-o", "json")
    told = [json.loads(each) for each in done.stdout.splitlines()]
    assert [each["kind"] for each in told] == ["submitted", "granted"]
    assert {each["request_id"] for each in told} == {first["id"]}
    assert [each["kind"] for each in client.events(request=second["id"])] == ["submitted"]

"""`cede run` in a pool of nodes: on the granted node, with its devices, here or by its agent."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest

from cede import Conflict
from cede.launch.here import boot_id, hostname
from tests.agent.cluster import POOL, TEAM, Cluster, alive
from tests.cli.terminal import CTRL_C, Shown, Typing, typed
from tests.client.serving import eventually

pytestmark = pytest.mark.system

OWN = ("--pool", POOL, "--component", TEAM, "-t", "team")
SHOW = "import json, os; print(json.dumps([os.getpid(), dict(os.environ)]))"


def run(*command: str, gpu: int = 1, options: tuple[str, ...] = ()) -> tuple[str, ...]:
    return ("run", *OWN, *options, "--gpu", str(gpu), "--", *command)


def told(shown: Shown) -> dict[str, str]:
    line = next(each for each in shown.lines if each.startswith("["))
    return json.loads(line)[1]


def only(shared: Cluster) -> dict:
    return next(iter(shared.client.requests.list(pool=POOL)))


def test_on_another_machine_its_agent_runs_it_and_it_is_followed_here(shared: Cluster) -> None:
    script = "echo to stdout; echo to stderr >&2; echo $CEDE_NODE $CUDA_VISIBLE_DEVICES; exit 41"
    shown = typed(*run("sh", "-c", script, gpu=2), env=shared.server.environment())
    assert shown.code == 41, shown.text
    for line in ("to stdout", "to stderr", "n1 0,1"):
        assert line in shown.lines, shown.text
    assert "cede: it runs on another machine and cannot read from this terminal" in shown.lines
    assert max(map(len, shown.lines)) <= 80
    ended = only(shared)
    assert (ended["status"], ended["reason"]["exit_code"], ended["lease"]) == ("failed", 41, None)
    assert len(shared.events(ended["id"], "handed_over")) == 1


def test_ctrl_c_stops_what_runs_elsewhere(shared: Cluster, tmp_path: Path) -> None:
    script = "trap 'echo told to stop; exit 0' TERM; echo $$; while :; do sleep 0.05; done"
    with Typing(*run("sh", "-c", script), env=shared.server.environment()) as typing:
        eventually(lambda: only(shared)["status"] == "allocated")
        typing.until("\n")
        typing.until("allocated")
        number = eventually(
            lambda: next((int(e) for e in shown_lines(typing) if e.isdecimal()), None)
        )
        typing.press(CTRL_C)
        shown = typing.ended()
    assert shown.code == 130, shown.text
    assert "told to stop" in shown.lines
    assert not alive(int(str(number)))
    assert only(shared)["status"] == "cancelled"


def shown_lines(typing: Typing) -> list[str]:
    typing.read_what_is_there()
    return typing.text.splitlines()


def test_on_this_machine_it_runs_here_with_the_devices_of_its_node(shared: Cluster) -> None:
    here = shared.agent(hostname(), 3)
    assert here.name == hostname()
    # Only the node that has three can hold it.
    command = run(sys.executable, "-c", SHOW, gpu=3)
    environment = shared.server.environment(ONLY_HERE="a variable that no agent knows")
    seen = told(typed(*command, env=environment))
    assert seen["ONLY_HERE"] and seen["CEDE_NODE"] == hostname()
    assert seen["CUDA_VISIBLE_DEVICES"] == "0,1,2"
    ended = only(shared)
    assert (ended["status"], ended["work"]) == ("released", None)
    assert shared.events(ended["id"], "handed_over") == []


def test_handing_over_is_done_once_and_before_anything_runs(shared: Cluster) -> None:
    client = shared.client
    body = {"component": TEAM, "component_type": "team", "pool": POOL, "kind": "work"}
    work = {"argv": ["true"], "env": {}, "directory": "/"}
    elsewhere = {"name": "elsewhere", "boot": boot_id()}
    made = client.requests.create({**body, "resources": {"gpu": 1}})
    assert made["status"] == "allocated"
    held = client.requests.renew(made["id"], attempt=1, running=True)
    assert held["allocation"]["state"] == "running"
    with pytest.raises(Conflict, match="not granted"):
        client.requests.hand_over(made["id"], work, attempt=1, here=elsewhere)
    with pytest.raises(Conflict, match="attempt"):
        client.requests.hand_over(made["id"], work, attempt=2, here=elsewhere)
    client.requests.release(made["id"])
    again = client.requests.create({**body, "resources": {"gpu": 1}})
    answers: list[dict] = []

    def hand_over() -> None:
        answers.append(client.requests.hand_over(again["id"], work, attempt=1, here=elsewhere))

    threads = [threading.Thread(target=hand_over) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert {each["work"]["argv"][0] for each in answers} == {"true"}
    assert shared.ended(again["id"])["status"] == "released"
    assert len(shared.events(again["id"], "handed_over")) == 1
    shared.server.kill()
    shared.server.start()
    assert client.requests.get(again["id"])["work"]["argv"] == ["true"]

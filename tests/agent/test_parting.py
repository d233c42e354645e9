"""Work on a node is asked to save itself, is stopped, and goes on from what it saved."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.agent.cluster import POOL, Cluster, read_when_there

pytestmark = pytest.mark.system

# Counts to five, saves when it is asked to, and waits after its first step for that to happen.
PROGRAM = """
import os, sys, time
import cede.checkpoint as checkpoint

home = sys.argv[1]
for step in checkpoint.steps(5, every=1000):
    with open(f"{home}/steps", "a") as out:
        print(step, os.environ["CEDE_ATTEMPT"], file=out)
    until = time.monotonic() + 30
    while os.environ["CEDE_ATTEMPT"] == "1" and step == 1 and time.monotonic() < until:
        if checkpoint.should_save():
            break
        time.sleep(0.05)
    if checkpoint.should_save():
        with checkpoint.saving() as directory:
            (directory / "done").write_text(str(step + 1))
        if os.environ["CEDE_ATTEMPT"] == "1":
            time.sleep(30)  # whoever asked for it stops us now
"""


@pytest.mark.parametrize("protocol", ["signal", "shm"])
def test_a_victim_saves_itself_and_goes_on(shared: Cluster, tmp_path: Path, protocol: str) -> None:
    agent = shared.agents[0]
    on = {"node_labels": {"host": agent.name}}
    blue = next(
        (p for p in shared.client.policies.list(pool=POOL) if p["component"] == "blue"), None
    )
    if blue is None:
        shared.client.policies.attach(
            POOL, "blue", component_type="team", priority=20, reserved={"gpu": 2}, limit={"gpu": 2}
        )
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    victim = shared.submit(
        sys.executable,
        str(program),
        str(tmp_path),
        gpus=2,
        checkpoint="auto",
        checkpoint_protocol=protocol,
        **on,
    )
    shared.until(lambda: "1 1" in read_when_there(tmp_path / "steps"), about=victim)
    beneficiary = shared.submit("sleep", "0.2", gpus=2, component="blue", **on)
    assert shared.ended(beneficiary)["status"] == "released"
    ended = shared.ended(victim)
    assert (ended["status"], ended["attempt"], ended["preempted_count"]) == ("released", 2, 1)
    steps = [line.split() for line in (tmp_path / "steps").read_text().splitlines()]
    assert [int(step) for step, _ in steps] == [0, 1, 2, 3, 4]
    assert [attempt for _, attempt in steps] == ["1", "1", "2", "2", "2"]

"""The training example under real agents: preempted by another team three times in a row, and each
time resumed on the other node, it ends with the same result as if nobody had disturbed it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cede import CedeClientError
from tests.agent.cluster import BLUE, POOL, TEAM, Cluster

pytestmark = pytest.mark.system

TRAIN = Path(__file__).parents[2] / "examples" / "training" / "train.py"
RESTING = Path(__file__).parents[1] / "checkpoint" / "programs" / "resting.py"
STEPS = ("--steps", "200", "--every", "40")
TIMES = 3
HOLD = "while ! test -e {go}; do sleep 0.05; done"


def result(said: str) -> list[str]:
    last = said.splitlines()[-2:]
    assert last[0].startswith("weights ") and last[1].startswith("wrong by "), said
    return last


def said(cluster: Cluster, request: str, attempt: int) -> str:
    try:
        pieces = cluster.client.requests.logs(request, attempt=attempt)
        return b"".join(data for _, data in pieces).decode()
    except CedeClientError:  # nothing yet
        return ""


def preempt(cluster: Cluster, request: str, attempt: int, go: Path) -> str:
    """Blue takes the node from under an attempt, and keeps it until the next one runs elsewhere."""
    begun = "started anew" if attempt == 1 else "resumed from"
    cluster.until(lambda: begun in said(cluster, request, attempt), about=request)
    node: str = cluster.get(request)["allocation"]["members"][0]["node"]
    on = {"node_labels": {"host": node}}
    blue = cluster.submit("sh", "-c", HOLD.format(go=go), component=BLUE, **on)
    cluster.until(lambda: said(cluster, request, attempt + 1), about=request)
    go.touch()
    assert cluster.ended(blue)["status"] == "released"
    return node


def test_preempted_three_times_in_a_row_it_comes_out_the_same(
    shared: Cluster, tmp_path: Path
) -> None:
    alone = subprocess.run(
        [sys.executable, TRAIN, *STEPS], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    checkpoints = tmp_path / "all"
    # Kept for no longer than it lives: it is asked about all the time, and must stay until the end.
    kept = ("--checkpoints", str(checkpoints), "--keep-checkpoints", "0")
    together = ("--allow-root-jobs", *kept, "--label", "for=train")
    for name in ("t1", "t2"):
        shared.start_agent(name, 1, *together)
    for name in ("t1", "t2"):
        shared.until_ready(name)
    shared.allow_everything()
    shared.allow_blue()
    team = ("--pool", POOL, "--component", TEAM, "-t", "team", "--node-label", "for=train")
    go = tmp_path / "go"
    command = (sys.executable, RESTING, go, TRAIN, *STEPS, "--pause", "0.2")
    made = shared.server.cede("submit", *team, "--gpu", 1, "--checkpoint", "auto", "--", *command)
    request = made.stdout.strip()
    nodes = [preempt(shared, request, n, tmp_path / f"go-{n}") for n in range(1, TIMES + 1)]
    go.touch()
    ended = shared.ended(request)
    assert (ended["status"], ended["attempt"]) == ("released", TIMES + 1)
    assert ended["preempted_count"] == len(shared.events(request, "suspended")) == TIMES
    assert nodes == [nodes[0], *({"t1", "t2"} - {nodes[0]}), nodes[0]]
    last = shared.server.cede("logs", request).stdout
    assert last.startswith("resumed from ")
    assert result(last) == result(alone.stdout)
    shared.until(lambda: not [each for each in checkpoints.iterdir() if each.is_dir()])

"""Classes under real agents: urgent work stops three at once and they lose nothing; a policy takes
the nodes back that it lent.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent.cluster import GRACE, Cluster
from tests.agent.test_training import HOLD, RESTING, STEPS, TRAIN, result, said

pytestmark = pytest.mark.system

POOL = "classes"
NODES = ("c1", "c2", "c3")


@pytest.fixture
def classes(shared: Cluster, tmp_path: Path) -> Cluster:
    """Three nodes of one GPU that share their checkpoints, in a pool of preset classes."""
    settings = {"grace": GRACE}
    shared.client.pools.create(POOL, nodes={"pool": POOL}, preset="classes", settings=settings)
    own = ("--allow-root-jobs", "--checkpoints", str(tmp_path / "all"), "--label", f"pool={POOL}")
    for name in NODES:
        shared.start_agent(name, 1, *own)
    for name in NODES:
        shared.until_ready(name)
    return shared


def attach(cluster: Cluster, team: str, **fields: Any) -> None:
    cluster.client.policies.attach(POOL, team, component_type="team", priority=0, **fields)


def train(cluster: Cluster, team: str, rank: int, go: Path) -> str:
    """A training that rests until `go` is there, and saves itself whenever it is asked."""
    command = (sys.executable, RESTING, go, TRAIN, *STEPS, "--pause", "0.2")
    own = {"component": team, "class": rank, "checkpoint": "auto", "pool": POOL}
    return cluster.submit(*map(str, command), **own)


def moment(cluster: Cluster, request: str, kind: str) -> Any:
    """When something happened to a request first: its place in the journal."""
    return cluster.events(request, kind)[0]


def test_three_are_saved_for_urgent_work_and_come_out_the_same(
    classes: Cluster, tmp_path: Path
) -> None:
    alone = subprocess.run(
        [sys.executable, TRAIN, *STEPS], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    attach(classes, "science")
    go, enough = tmp_path / "go", tmp_path / "enough"
    low = [train(classes, "science", 3, go) for _ in NODES]
    for each in low:
        classes.until(lambda each=each: "started anew" in said(classes, each, 1), about=each)
    own = {"component": "science", "class": 7, "pool": POOL, "tasks": 3, "per_node": 1}
    high = classes.submit("sh", "-c", HOLD.format(go=enough), **own)
    classes.until(lambda: classes.get(high)["status"] == "allocated", about=high)
    classes.until(lambda: classes.events(high, "started"), about=high)
    asked = {moment(classes, each, "preempting")["at"] for each in low}
    assert len(asked) == 1, "all are asked at once"
    assert {classes.get(each)["status"] for each in low} == {"suspended"}
    released = [moment(classes, each, "suspended")["index"] for each in low]
    assert max(released) < moment(classes, high, "granted")["index"]
    assert moment(classes, low[0], "preempting")["data"]["reason"]["code"] == "higher_class"
    enough.touch()
    assert classes.ended(high)["status"] == "released"
    for each in low:
        classes.until(lambda each=each: "resumed from" in said(classes, each, 2), about=each)
    go.touch()
    for each in low:
        ended = classes.ended(each)
        assert (ended["status"], ended["attempt"], ended["preempted_count"]) == ("released", 2, 1)
        assert result(said(classes, each, 2)) == result(alone.stdout)


def test_a_policy_takes_the_nodes_back_that_it_lent(classes: Cluster, tmp_path: Path) -> None:
    attach(classes, "owner", home=["c1", "c2"], max_borrow_pct=1.0)
    attach(classes, "guest")
    go, enough = tmp_path / "go", tmp_path / "enough"
    guests = [train(classes, "guest", 4, go) for _ in NODES]
    for each in guests:
        classes.until(lambda each=each: "started anew" in said(classes, each, 1), about=each)
    own = {"component": "owner", "class": 4, "pool": POOL, "tasks": 2, "per_node": 1}
    mine = classes.submit("sh", "-c", HOLD.format(go=enough), **own)
    classes.until(lambda: classes.events(mine, "started"), about=mine)
    places = {each["node"] for each in classes.get(mine)["allocation"]["members"]}
    assert places == {"c1", "c2"}
    stopped = [each for each in guests if classes.get(each)["status"] == "suspended"]
    assert len(stopped) == 2, "the one on the third node goes on"
    for each in stopped:
        assert moment(classes, each, "preempting")["data"]["reason"]["code"] == "reclaim"
    enough.touch()
    go.touch()
    for each in (mine, *guests):
        assert classes.ended(each)["status"] == "released"

"""Fair share under real agents: three nodes, two teams, real processes.

Time-outs are short by the pool's settings; the tests wait for what happens, not for time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.agent.cluster import BLUE, TEAM, Cluster, alive

pytestmark = pytest.mark.system

POOL = "fair"
NODES = ("f1", "f2", "f3")
GPUS = 4  # of each node
SOON = {
    "grace": 3,
    "fair_share_update_period": 0.2,
    "fair_share_starvation_timeout": 1,
    "fair_share_aggressive_starvation_timeout": 2,
    "preemptive_scheduling_backoff": 0.5,
}
# Says who runs it, and goes on until it is told to stop.
STAY = "echo $$ > {pid}.new && mv {pid}.new {pid}; exec sleep 100000"


class Fair:
    """A pool of three nodes that two teams share by halves."""

    def __init__(self, cluster: Cluster, home: Path) -> None:
        self.cluster, self.home = cluster, home
        self.pids: dict[str, Path] = {}
        self.policies: dict[str, str] = {}

    def pool(self, **settings: Any) -> None:
        client = self.cluster.client
        given = {**SOON, **settings}
        client.pools.create(POOL, nodes={"pool": POOL}, preset="fair_share", settings=given)
        for team in (TEAM, BLUE):
            made = client.policies.attach(POOL, team, component_type="team", priority=0)
            self.policies[team] = str(made["id"])

    def submit(self, gpus: int = 1, node: str | None = None, team: str = TEAM) -> str:
        pid = self.home / f"{len(self.pids)}.pid"
        on = {} if node is None else {"node_labels": {"host": node}}
        made = self.cluster.submit(
            "sh", "-c", STAY.format(pid=pid), gpus=gpus, pool=POOL, component=team, **on
        )
        self.pids[made] = pid
        return made

    def running(self, *requests: str) -> None:
        """Until all of these run."""
        for each in requests:
            self.cluster.until(partial(self.pid, each), about=each)

    def pid(self, request: str) -> int:
        """Of its process, once it has said so and while it lives."""
        found = self.pids[request]
        number = int(found.read_text()) if found.exists() else 0
        return number if number and alive(number) else 0

    def starvation(self, name: str) -> str:
        elements = self.cluster.client.pools.shares(POOL)["elements"]
        (found,) = (each["starvation"] for each in elements if each["name"] == name)
        return str(found)

    def stopped(self, requests: list[str]) -> list[str]:
        """Those that were told to stop for somebody."""
        return [each for each in requests if self.cluster.events(each, "preempting")]


@pytest.fixture(scope="module")
def nodes(one_for_all: Cluster) -> Iterator[None]:
    own = ("--allow-root-jobs", "--label", f"pool={POOL}")
    with one_for_all.borrowed():
        for name in NODES:
            one_for_all.start_agent(name, GPUS, *own)
        for name in NODES:
            one_for_all.until_ready(name)
        yield


@pytest.fixture
def fair(nodes: None, shared: Cluster, tmp_path: Path) -> Fair:
    tmp_path.chmod(0o777)
    return Fair(shared, tmp_path)


def test_who_starves_is_served_newest_first_and_older_work_goes_on(fair: Fair) -> None:
    fair.pool()
    theirs = []
    for _ in range(6):
        theirs.append(fair.submit(gpus=2))
        fair.running(theirs[-1])  # newest is by start
    before = {each: fair.pid(each) for each in theirs}
    ours = [fair.submit(gpus=2, team=BLUE) for _ in range(3)]
    fair.running(*ours)
    assert fair.stopped(theirs) == theirs[3:], "the newer half"
    assert {each: fair.pid(each) for each in theirs[:3]} == {
        each: before[each] for each in theirs[:3]
    }
    for each in theirs[3:]:
        assert not fair.pid(each)
        (told,) = fair.cluster.events(each, "preempting")
        assert told["data"]["reason"]["code"] == "starvation"


def fragmented(fair: Fair, **settings: Any) -> list[str]:
    """Red is due 9 of 12 and has all. Its newest three, which are beyond that, are one to a node:
    nowhere half a node.
    """
    fair.pool(
        enable_aggressive_starvation=True,
        aggressive_preemption_satisfaction_threshold=0.7,
        **settings,
    )
    fair.cluster.client.policies.update(fair.policies[TEAM], weight=3)
    theirs = []
    for _ in range(GPUS):
        theirs += [fair.submit(node=node) for node in NODES]
        fair.running(*theirs[-len(NODES) :])
    return theirs


def test_the_aggressive_stage_finds_half_a_node_in_a_fragmented_cluster(fair: Fair) -> None:
    theirs = fragmented(fair)
    before = {each: fair.pid(each) for each in theirs}
    ours = [fair.submit(gpus=2, team=BLUE) for _ in range(2)]
    # Both: with four blue has 1.33 of its fair share and red 0.89, more than blue's 0.67 with two.
    fair.running(*ours)
    stopped = fair.stopped(theirs)
    at = sorted(theirs.index(each) for each in stopped)
    assert len(at) == 4 and at[2:] == [each + len(NODES) for each in at[:2]], "two of each node"
    assert at[0] >= 2 * len(NODES), "what is safe at all times stays"
    kept = [each for each in theirs if each not in stopped]
    assert [fair.pid(each) for each in kept] == [before[each] for each in kept]


def test_nothing_within_a_share_is_taken_where_that_is_not_allowed(fair: Fair) -> None:
    theirs = fragmented(fair, allow_aggressive_preemption=False)
    before = [fair.pid(each) for each in theirs]
    ours = [fair.submit(gpus=2, team=BLUE) for _ in range(2)]
    fair.cluster.until(lambda: fair.starvation(BLUE) == "aggressively_starving", about=ours[0])
    why = fair.cluster.client.requests.why(ours[0])
    assert why["reason"]["stage"] == "aggressively_preemptive", why
    assert fair.stopped(theirs) == []
    assert [fair.pid(each) for each in theirs] == before
    assert not any(map(fair.pid, ours))

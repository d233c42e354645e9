"""Fair-share preemption in small clusters: who is stopped, how many, and for how long they had run.

The numbers of the first three are those of another system's simulator of such clusters; the stories
after them are those of its tests, told in our words. A cpu is 1000 `mcpu`.
"""

from __future__ import annotations

from typing import Any

import pytest

from cede.engine.admin import edits
from cede.engine.lifecycle import commands
from tests.fair.cluster import POOL, Cluster

CPU = 1_000
AGGRESSIVE = {
    "enable_aggressive_starvation": True,
    "fair_share_aggressive_starvation_timeout": 60,
}


def cpus(number: float) -> dict[str, int]:
    return {"mcpu": int(number * CPU)}


# Whole runs -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_second_of_two_gets_its_part_by_stopping_no_more_than_that() -> None:
    """Below its share is who has less than 0.8 of it, here 20 jobs of 25: so 20 are stopped, each
    after 50 seconds and more, and nobody for the first in return.
    """
    cluster = Cluster(
        10,
        {"mcpu": 10 * CPU, "memory_mb": 10_000, "slot": 100, "network": 100},
        preemptive_scheduling_backoff=5,
        fair_share_starvation_timeout=30,
        fair_share_starvation_tolerance=0.8,
        preemption_satisfaction_threshold=1.0,
        aggressive_preemption_satisfaction_threshold=0.5,
        non_preemptible_resource_usage_threshold={"slot": 10},
    )
    cluster.team("test10")
    cluster.team("test20")
    job = {"mcpu": 2 * CPU, "memory_mb": 2_000, "slot": 1}
    cluster.submit("test10", "first", job, jobs=100, seconds=120)
    cluster.run(until=20)
    cluster.submit("test20", "second", {**job, "network": 1}, jobs=100, seconds=120)
    cluster.run(until=50)
    assert cluster.preempted == {"first": [], "second": []}
    cluster.run(until=600)
    assert cluster.finished()
    assert 20 <= len(cluster.preempted["first"]) <= 22
    assert 999 <= sum(cluster.preempted["first"]) / 1_000 <= 2_401
    assert cluster.preempted["second"] == []


def test_nobody_is_stopped_for_work_of_the_same_request() -> None:
    cluster = Cluster(1, {"mcpu": 100 * CPU, "memory_mb": 100_000})
    cluster.team("alone")
    cluster.submit("alone", "op", {"mcpu": CPU, "memory_mb": 2_000}, jobs=100, seconds=120)
    cluster.run(until=241)
    assert cluster.finished()
    assert cluster.granted == {"op": 100}
    assert cluster.preempted == {"op": []}


def test_nobody_is_stopped_where_two_want_what_the_other_has_most_of() -> None:
    """A third of what one needs little of, two thirds of what it needs most: both at once."""
    cluster = Cluster(1, {"mcpu": 100 * CPU, "memory_mb": 100_000, "network": 100})
    cluster.team("red")
    cluster.team("blue")
    cluster.submit("red", "wide", {"mcpu": CPU, "memory_mb": 2_000}, jobs=100, seconds=120)
    fast = {"mcpu": 2 * CPU, "memory_mb": 1_000, "network": 1}
    cluster.submit("blue", "fast", fast, jobs=100, seconds=120)
    cluster.run(until=1)
    assert (len(cluster.running("wide")), len(cluster.running("fast"))) == (33, 33)
    cluster.run(until=600)
    assert cluster.finished()
    assert cluster.preempted == {"wide": [], "fast": []}


def test_who_has_a_guarantee_takes_all_of_it_and_ends() -> None:
    cluster = Cluster(3, cpus(1))
    cluster.team("guest")
    cluster.submit("guest", "first", cpus(1), jobs=3)
    cluster.run(until=20)
    assert len(cluster.running("first")) == 3
    cluster.team("owner", reserved=cpus(3))
    cluster.submit("owner", "second", cpus(1), jobs=3, seconds=60)
    cluster.run(until=70)
    assert len(cluster.running("second")) == 3
    cluster.run(until=140)
    assert cluster.ended_well("second")
    assert len(cluster.running("first")) == 3
    assert len(cluster.preempted["first"]) == 3


# Above a limit --------------------------------------------------------------------------------


def test_a_request_above_its_own_limit_is_cut_back_after_the_grace() -> None:
    cluster = Cluster(3, {"mcpu": CPU, "slot": 1}, over_limit_grace=15)
    cluster.team("red")
    cluster.submit("red", "op", {"mcpu": CPU, "slot": 1}, jobs=3)
    cluster.run(until=10)
    jobs = cluster.running("op")
    assert len(jobs) == 3
    commands.set_limit(cluster.state, "op.0", {"slot": 1}, cluster.now)
    cluster.run(until=24)
    assert len(cluster.running("op")) == 3
    cluster.run(until=26)
    assert cluster.running("op") == jobs[:1], "the oldest stays"
    commands.set_limit(cluster.state, "op.0", {"slot": 0}, cluster.now)
    cluster.run(until=60)
    assert cluster.running("op") == []


def test_a_policy_above_its_lowered_limit_is_cut_back() -> None:
    cluster = Cluster(3, cpus(1), over_limit_grace=15)
    cluster.team("red")
    cluster.submit("red", "op", cpus(1), jobs=3)
    cluster.run(until=10)
    jobs = cluster.running("op")
    edits.update_policy(cluster.state, "red", limit=cpus(2))
    cluster.run(until=30)
    assert cluster.running("op") == jobs[:2]
    cluster.run(until=300)
    assert cluster.running("op") == jobs[:2], "and nothing is granted above it"


@pytest.mark.parametrize(("left", "stay"), [({"slot": 1}, 1), ({}, 0)])
def test_a_node_that_comes_back_with_less_keeps_what_fits(left: dict[str, int], stay: int) -> None:
    """What it has no more goes on elsewhere, after the grace."""
    cluster = Cluster(2, {"slot": 2, "mcpu": CPU}, over_limit_grace=15)
    cluster.team("red")
    cluster.submit("red", "op", {"slot": 1}, jobs=2)
    cluster.run(until=10)
    (here,) = {cluster.node_of(each) for each in cluster.running("op")}
    (other,) = {"n0", "n1"} - {here}
    cluster.register(here, {**left, "mcpu": CPU})
    cluster.run(until=24)
    assert [cluster.node_of(each) for each in cluster.running("op")] == [here, here]
    cluster.run(until=26)
    where = [cluster.node_of(each) for each in cluster.running("op")]
    assert where == [here] * stay + [other] * (2 - stay), "the oldest stay"
    assert len(cluster.preempted["op"]) == 2 - stay


# Who goes -------------------------------------------------------------------------------------


def test_the_newest_goes_and_only_where_the_waiter_may_run() -> None:
    """Research is due five of its six: only the newest, on the last node, is beyond its share."""
    cluster = Cluster(3, cpus(1))
    cluster.team("research")
    cluster.team("production")
    cluster.submit("research", "op", cpus(0.5), jobs=6)
    cluster.run(until=10)
    on = {each: cluster.node_of(each) for each in cluster.running("op")}
    oldest, *_, newest = on
    assert list(on.values()).count(on[newest]) == 2 and on[oldest] != on[newest]
    cluster.submit("production", "here", cpus(0.5), host=on[oldest])
    cluster.run(until=200)
    assert cluster.running("here") == []
    assert cluster.preempted["op"] == []
    commands.cancel(cluster.state, "here.0", cluster.now, actor="somebody")
    cluster.submit("production", "there", cpus(0.5), host=on[newest])
    cluster.run(until=300)
    assert cluster.running("there") == ["there.0"]
    assert cluster.running("op") == [each for each in on if each != newest]


@pytest.mark.parametrize(
    ("done", "goes"),
    [((), "op.2"), (("fails op.0",), "op.0"), (("fails op.0", "saves op.1"), "op.1")],
    ids=["the newest", "who began anew", "who saved its progress"],
)
def test_who_loses_the_least_is_who_began_or_saved_last(done: tuple[str, ...], goes: str) -> None:
    """An allocation is one attempt: whoever begins anew is the newest, as is who has saved."""
    cluster = Cluster(1, cpus(3))
    cluster.team("red")
    cluster.team("blue")
    cluster.submit("red", "op", cpus(1), jobs=3)
    cluster.run(until=10)
    for word, job in (each.split() for each in done):
        if word == "fails":
            commands.release(cluster.state, job, cluster.now, outcome="failed", exit_code=1)
        else:
            cluster.save(job)
        cluster.run(until=cluster.now // 1_000 + 1)
    assert len(cluster.running("op")) == 3
    cluster.submit("blue", "one", cpus(1))
    cluster.run(until=60)
    assert cluster.running("one") == ["one.0"]
    assert set(cluster.running("op")) == {"op.0", "op.1", "op.2"} - {goes}


# Aggressively ---------------------------------------------------------------------------------


def fragmented(red: dict[str, Any] | None = None, **settings: Any) -> Cluster:
    """Red has all four nodes in small jobs. Of what is beyond its share, the newest four, there is
    a quarter of a node everywhere; blue wants half a node, twice.
    """
    cluster = Cluster(4, cpus(4), **{**AGGRESSIVE, **settings})
    cluster.team("red", settings=red or {})
    cluster.team("blue")
    for turn in range(4):
        for node in range(4):
            cluster.submit("red", f"r{turn}{node}", cpus(1), host=f"n{node}")
    cluster.run(until=10)
    cluster.submit("blue", "half", cpus(2), jobs=2)
    return cluster


def test_half_a_node_is_found_in_a_fragmented_cluster_by_the_aggressive_stage() -> None:
    cluster = fragmented()
    cluster.run(until=65)
    assert cluster.running("half") == [], "who only starves takes nothing within a share"
    cluster.run(until=75)
    assert len(cluster.running("half")) == 2, "both, and red still uses as much of its share"
    stopped = [name for name, ran in cluster.preempted.items() if ran]
    assert len(stopped) == 4
    assert {name[1] for name in stopped} == {"2", "3"}, "newest first: the oldest two rows stay"


@pytest.mark.parametrize(
    "denied",
    [
        {"allow_aggressive_preemption": False},
        {"enable_aggressive_starvation": False},
        {"red": {"allow_aggressive_preemption": False}},
    ],
    ids=["not in the pool", "nobody starves so", "not from its holder"],
)
def test_half_a_node_is_not_found_where_that_is_not_allowed(denied: dict[str, Any]) -> None:
    cluster = fragmented(**denied)
    cluster.run(until=600)
    assert cluster.running("half") == []
    assert not any(cluster.preempted.values())


def test_who_may_take_aggressively_is_a_matter_of_its_policy_too() -> None:
    cluster = fragmented(enable_aggressive_starvation=False)
    edits.update_policy(cluster.state, "blue", settings={"enable_aggressive_starvation": True})
    cluster.run(until=75)
    assert len(cluster.running("half")) == 2


def test_the_pool_is_what_its_nodes_have() -> None:
    """The driver's own check: a job that could never run is refused, not forgotten."""
    cluster = Cluster(2, cpus(1))
    cluster.team("red")
    cluster.submit("red", "large", cpus(2))
    cluster.run(until=1)
    assert cluster.state.pools[POOL].capacity == cpus(2)
    assert [each.kind for each in cluster.events if each.request_id == "large.0"] == ["rejected"]

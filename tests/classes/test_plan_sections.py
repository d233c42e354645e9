"""Lending, topology, whole queues and timelines of another system's cases, through `plan`; and its
tables of transitions beside ours. Where ours comes out otherwise, the test says by what rule.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from cede.model.lifecycle import ALLOCATION_MOVES, REQUEST_MOVES
from cede.model.node import NODE_MOVES, NodeState
from cede.sim.plan import run

NOW = 1_000_000  # seconds
POLICY = {"pool": "p", "component_type": "team", "max_class": 10, "allow_sensitive": True}


def node(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "amounts": {"unit": 1}, "labels": {"in": "p"}, **more}


def world(nodes: list[dict[str, Any]], **parts: Any) -> dict[str, Any]:
    pool = {"name": "p", "preset": "classes", "nodes": {"in": "p"}}
    policies = [{**POLICY, "component": "all"}]
    return {"now": NOW, "nodes": nodes, "pools": [pool], "policies": policies, **parts}


def asked(name: str, team: str = "all", **more: Any) -> dict[str, Any]:
    whose = {"component": team, "component_type": "team", "pool": "p"}
    return {"id": name, **whose, "resources": {"unit": 1}, **more}


def grouped(sizes: dict[str, int]) -> list[dict[str, Any]]:
    """Nodes g0n0, g0n1, … in groups g0, … of these sizes."""
    return [
        node(f"{group.rpartition('/')[2]}n{each}", group=group)
        for group, size in sizes.items()
        for each in range(size)
    ]


def decided(snapshot: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the first pass does with every waiter."""
    decisions = run(snapshot)["passes"][0]["decisions"]
    return {each.get("request", each.get("beneficiary")): each for each in decisions}


# Lending: nodes asked for, idle and dedicated; may lend, may borrow, the part lent; granted?
LENDING = [
    (2, 10, 10, True, True, 0.2, True),
    (2, 10, 10, False, True, 0.2, False),
    (2, 10, 10, True, False, 0.2, False),
    (3, 10, 10, True, True, 0.2, False),
    (1, 5, 0, True, True, 0.2, False),
    (1, 0, 10, True, True, 0.2, False),
    (2, 1, 100, True, True, 0.2, False),
    (3, 5, 20, True, True, 0.2, True),
    (4, 10, 50, True, True, 0.2, True),
    (1, 10, 10, True, True, 0.0, False),
    (5, 5, 5, True, True, 1.0, True),
]


@pytest.mark.parametrize("case", LENDING, ids=str)
def test_idle_nodes_are_lent(case: tuple[int, int, int, bool, bool, float, bool]) -> None:
    wanted, idle, dedicated, lends, borrows, part, granted = case
    nodes = [node(f"n{each:03}", labels={"in": "p", "of": "home"}) for each in range(dedicated)]
    home = {"home": {"of": "home"}, "allow_lending": lends, "max_borrow_pct": part}
    busy = [each["name"] for each in nodes[min(idle, dedicated) :]]
    found = decided(
        world(
            nodes or [node("elsewhere", labels={"in": "q"})],
            policies=[
                {**POLICY, "component": "owner", **home},
                {**POLICY, "component": "guest", "allow_borrowing": borrows},
            ],
            running=[asked(f"own-{name}", "owner", nodes=[name]) for name in busy],
            requests=[asked("w", "guest", nodes=wanted)],
        )
    )
    assert (found["w"]["do"] == "grant") == granted


# Topology: nodes asked for, how, in groups of so many; the nodes that each group gives. What is by
# our own rule is beside what the other system does. Its groups that are adjacent share a path here.
THREE = {"g0": 3, "g1": 8, "g2": 5}
TOPOLOGY: dict[str, tuple[int, str | None, dict[str, int], dict[str, int] | None]] = {
    # One group. Ours is the smallest that holds it, so that g1 stays whole; theirs the largest.
    "tight_one_group": (4, "tight", THREE, {"g2": 4}),
    "tight_multi": (10, "tight", {"a/g0": 3, "a/g1": 8, "b/g2": 5}, {"g1": 8, "g0": 2}),
    "tight_multi_noadj": (10, "tight", THREE, {"g1": 8, "g2": 2}),
    "default_is_tight": (4, None, THREE, {"g2": 4}),  # by the same rule of ours
    "spread_even": (6, "spread", {"g0": 4, "g1": 4, "g2": 4}, {"g0": 2, "g1": 2, "g2": 2}),
    # Spreading is a wish: theirs gives up, because a group is smaller than its part.
    "spread_fails_uneven": (6, "spread", {"g0": 1, "g1": 4, "g2": 4}, {"g0": 1, "g1": 3, "g2": 2}),
    "spread_5_of_3": (5, "spread", {"g0": 4, "g1": 4, "g2": 4}, {"g0": 2, "g1": 2, "g2": 1}),
    "any_first": (3, "any", {"g0": 2, "g1": 4}, {"g0": 2, "g1": 1}),
    "too_many": (20, "tight", THREE, None),
}


@pytest.mark.parametrize("name", TOPOLOGY)
def test_topology_chooses_as_many_nodes_of_each_group(name: str) -> None:
    wanted, how, groups, chosen = TOPOLOGY[name]
    wish = {} if how is None else {"topology": how}
    found = decided(world(grouped(groups), requests=[asked("w", nodes=wanted, **wish)]))["w"]
    if chosen is None:
        assert found["do"] == "reject"
    else:
        assert Counter(place.partition("n")[0] for place in found["nodes"]) == chosen


# Queues: waiters (nodes, class, walltime, sensitive), free nodes by fingerprint, how many nodes are
# released in two hours; who starts. With ours beside theirs where a rule of ours decides.
QUEUES: dict[str, tuple[list[tuple[int, int, int, bool]], list[str], int, set[int], set[int]]] = {
    "single": ([(1, 5, 3600, False)], [""] * 4, 0, {0}, {0}),
    "not_enough": ([(10, 5, 3600, False)], [""] * 4, 0, set(), set()),
    "priority_first": ([(2, 1, 3600, False), (2, 8, 3600, False)], [""] * 2, 0, {1}, {1}),
    "no_timeline": ([(10, 8, 3600, False), (1, 2, 1800, False)], [""] * 2, 0, {1}, {1}),
    "sensitive_bf_impossible": (
        [(8, 8, 14_400, False), (6, 3, 3600, False)], [""] * 4, 4, set(), set(),
    ),
    "conformance_beats_topology": ([(3, 5, 3600, False)], [*"AAAABBB"], 0, {0}, {0}),
    "unknown_conf_is_one_group": ([(3, 5, 3600, False)], ["", "", "", "", *"BBB"], 0, {0}, {0}),
    "topo_fallback": ([(5, 5, 3600, False)], [*"AAABBBB"], 0, {0}, {0}),
    "backfill_possible_via_constraint_gap": (
        [(4, 8, 14_400, False), (3, 5, 1800, True)], [*"AABB"], 2, {0}, {1},
    ),
    # What is sensitive need not be alike: who wants that asks for a fingerprint.
    "sens_conf": ([(3, 8, 14_400, True), (2, 2, 1800, True)], [*"AABB"], 3, {1}, {0}),
    "no_backfill_when_conf_short": (
        [(4, 8, 14_400, True), (4, 5, 1800, True), (2, 2, 900, False)], [*"AAABBB"], 4, {2}, {0, 2},
    ),
    # Theirs lets 100 hours of the lowest class start on what the head waits for.
    "greedy_skips_reservation": (
        [(4, 8, 14_400, False), (2, 1, 360_000, False)], [""] * 2, 2, {1}, set(),
    ),
    # A request has as many tasks as it says. Theirs takes up to 8, and starves the next one.
    "range_takes_max": ([(2, 5, 3600, False)], [""] * 5, 0, {0}, {0}),
    "range_greedy_starves_next": (
        [(1, 9, 3600, False), (1, 1, 3600, False)], [""] * 4, 0, {0}, {0, 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUEUES)
def test_as_many_of_a_queue_start(name: str) -> None:
    waiters, free, released, theirs, ours = QUEUES[name]
    nodes = [node(f"f{at}", fingerprint=mark) for at, mark in enumerate(free)]
    busy = [node(f"r{at}") for at in range(released)]
    held = asked("held", nodes=[each["name"] for each in busy], tasks=released, walltime=7200)
    found = decided(
        world(
            nodes + busy,
            running=[{**held, "class": 10, "started_at": NOW}] if busy else [],
            requests=[
                {
                    **asked(str(at), nodes=count, walltime=walltime, sensitive=secret),
                    "class": rank,
                }
                for at, (count, rank, walltime, secret) in enumerate(waiters)
            ],
        )
    )
    assert {int(each) for each, told in found.items() if told["do"] == "grant"} == ours
    same = {"sens_conf", "backfill_possible_via_constraint_gap"}  # as many, and others
    assert (len(ours) == len(theirs)) == (ours == theirs or name in same)


def test_a_node_that_takes_no_work_is_not_used() -> None:
    nodes = [node("n1"), node("n2", out="drain", state="drained"), node("n3")]
    found = decided(world(nodes, requests=[asked("w", nodes=2)]))
    assert sorted(found["w"]["nodes"]) == ["n1", "n3"]


# Timelines: nodes wanted and free, holders (started before, walltime, nodes); when it starts within
# a day, in seconds from now. Theirs forgets whoever should have ended by now; ours ends them.
TIMELINES: dict[str, tuple[int, int, list[tuple[int, int | None, int]], int | None]] = {
    "bounded": (3, 1, [(3600, 14_400, 2)], 10_800),
    "unbounded": (2, 0, [(3600, None, 2)], None),
    "past, by our rule": (1, 0, [(18_000, 7200, 1)], 0),
    "beyond": (1, 0, [(3600, 172_800, 1)], None),
    "enough_free": (3, 4, [(3600, 14_400, 1)], 0),
    "two_steps": (3, 0, [(3600, 7200, 1), (3600, 14_400, 2), (3600, 10_800, 1)], 10_800),
    "release_exactly_now, by our rule": (1, 0, [(3600, 3600, 1)], 0),
    "release_exactly_horizon": (1, 0, [(3600, 90_000, 1)], 86_400),
}


@pytest.mark.parametrize("name", TIMELINES)
def test_the_head_starts_when_walltimes_say(name: str) -> None:
    wanted, free, holders, start = TIMELINES[name]
    nodes = [node(f"free{at}") for at in range(free)]
    running = []
    for at, (age, walltime, count) in enumerate(holders):
        places = [f"h{at}-{each}" for each in range(count)]
        nodes += [node(place) for place in places]
        held = asked(f"h{at}", nodes=places, tasks=count, started_at=NOW - age)
        running.append({**held, **({} if walltime is None else {"walltime": walltime})})
    told = run(
        world(nodes, running=running, requests=[asked("w", nodes=wanted, walltime=60)]),
        until_rest=True,
        horizon=86_400,
    )
    started = [
        each["now"] - NOW
        for each in told["passes"]
        for decision in each["decisions"]
        if decision["do"] == "grant"
    ]
    assert started == ([] if start is None else [start])


# Transitions: what theirs is called here. A request's status, and the state of its allocation.
CALLED = {
    "Pending": ("queued", None),
    "Staging": ("allocated", "starting"),
    "Running": ("allocated", "running"),
    "Checkpointing": ("preempting", "checkpointing"),
    "Suspended": ("suspended", None),
    "Completed": ("released", None),
    "Failed": ("failed", None),
    "Cancelled": ("cancelled", None),
}
THEIRS = {
    "Pending": "Staging Running Cancelled Failed",
    "Staging": "Running Failed Cancelled",
    "Running": "Checkpointing Completed Failed Cancelled",
    "Checkpointing": "Suspended Failed Cancelled",
    "Suspended": "Pending Cancelled Failed",
    "Failed": "Pending",
}
NOT_HERE = {
    ("Pending", "Failed"),  # who cannot start is rejected, or waits
    ("Suspended", "Pending"),  # it waits as it is, and starts from there
    ("Suspended", "Failed"),  # as who waits
    ("Failed", "Pending"),  # an attempt fails and the request is queued; a failed request has ended
}


def test_transitions_of_requests_are_theirs_but_for_those_named() -> None:
    requests = {str(key): set(map(str, moves)) for key, moves in REQUEST_MOVES.items()}
    allocations = {str(key): set(map(str, moves)) for key, moves in ALLOCATION_MOVES.items()}

    def may(one: str, other: str) -> bool:
        (status, held), (then, holds) = CALLED[one], CALLED[other]
        if status == then:
            return str(holds) in allocations[str(held)]
        return then in requests[status]

    edges = {(one, other) for one, all_ in THEIRS.items() for other in all_.split()}
    assert {edge for edge in edges if not may(*edge)} == NOT_HERE
    assert requests["allocated"] >= {"queued"}, "that is where a failed attempt goes"
    assert requests["released"] == requests["cancelled"] == requests["failed"] == set()


def test_transitions_of_nodes_are_theirs_and_some_more() -> None:
    """A node is known once it registers: Unknown, Booting and Failed are not states here."""
    theirs = {
        ("ready", "degraded"), ("ready", "draining"), ("ready", "down"), ("degraded", "ready"),
        ("degraded", "down"), ("degraded", "draining"), ("down", "ready"),
        ("draining", "drained"), ("drained", "ready"),
    }  # fmt: skip
    ours = {(str(one), str(each)) for one, moves in NODE_MOVES.items() for each in moves}
    assert theirs <= ours
    assert ours - theirs == {
        ("ready", "drained"), ("degraded", "drained"),  # nothing runs there: drained at once
        ("down", "draining"), ("down", "drained"), ("drained", "draining"),  # told while away
        ("draining", "down"), ("drained", "down"),  # it may fall silent meanwhile
        ("draining", "ready"),  # an operator changed their mind
    }  # fmt: skip
    assert {str(each) for each in NodeState} == {one for edge in ours for one in edge}

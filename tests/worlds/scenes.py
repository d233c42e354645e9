"""Worlds that are not drawn but made, each so small that one rule of fair shares decides in it.

The search through all of a scene takes a second, so a bug in that rule is found in a second.
"""

from __future__ import annotations

from typing import Any

from cede.model.amounts import total
from cede.model.shape import Shape

from .draw_fair import POOL, STARVES, STARVES_AGGRESSIVELY
from .world import Ask, World

SETTINGS: dict[str, Any] = {
    "fair_share_update_period": 0,
    "fair_share_starvation_timeout": STARVES,
    "fair_share_aggressive_starvation_timeout": STARVES_AGGRESSIVELY,
    "fair_share_starvation_tolerance": 1.0,
    "enable_aggressive_starvation": True,
}


def _policy(team: str, **more: Any) -> dict[str, Any]:
    return {"pool": POOL, "team": team, **more}


def _task_group(id: str, team: str, parts: int, **amounts: int) -> Ask:
    return Ask(id, team, amounts, True, shape=Shape(amounts), parts=parts)


def _counted(
    number: int, gpus: int, policies: list[dict[str, Any]], asks: list[Ask], **more: Any
) -> World:
    return World(
        number, {POOL: {"gpu": gpus}}, policies, asks, SETTINGS | more, preset="fair_share"
    )


def _on_nodes(
    number: int,
    nodes: list[dict[str, int]],
    policies: list[dict[str, Any]],
    asks: list[Ask],
    **more: Any,
) -> World:
    settings = SETTINGS | {"preemptive_scheduling_backoff": 5} | more
    capacity = dict(total(nodes))
    return World(
        number,
        {POOL: capacity},
        policies,
        asks,
        settings,
        nodes={POOL: nodes},
        preset="fair_share",
    )


def in_pieces(**of_holder: Any) -> World:
    """One has a task on every node and no more than its share; what is free is in pieces too small
    for the other, which has nothing. Only aggressively may it take what is within a share.
    """
    return _on_nodes(
        -1,
        [{"gpu": 3}] * 4,
        [_policy("wide", weight=2, settings=of_holder), _policy("large")],
        [_task_group("r0", "wide", 4, gpu=2), _task_group("r1", "large", 2, gpu=2)],
    )


def one_node(backoff: int) -> World:
    """One waits for half of a node that the other has all of, task by task."""
    return _on_nodes(
        -2,
        [{"gpu": 4}],
        [_policy("first"), _policy("second")],
        [_task_group("r0", "first", 4, gpu=1), _task_group("r1", "second", 2, gpu=1)],
        preemptive_scheduling_backoff=backoff,
    )


def half_is_enough() -> World:
    """One tolerates half of its share: when it has that it takes no more."""
    return _counted(
        -3,
        4,
        [
            _policy("first"),
            _policy("second", settings={"fair_share_starvation_tolerance": 0.5}),
        ],
        [_task_group("r0", "first", 4, gpu=1), _task_group("r1", "second", 3, gpu=1)],
    )


def turns() -> World:
    """Each of two would be beyond its share with what it asks for, and both do not fit."""
    return _counted(
        -4,
        3,
        [_policy("first"), _policy("second")],
        [Ask("r0", "first", {"gpu": 2}, True), Ask("r1", "second", {"gpu": 2}, True)],
        consider_allocation_on_fair_share_bound_preemptible=True,
    )


def inside() -> World:
    """Two requests of one policy: the first has all, the last third of it beyond its own share; the
    second third is as safe as what the other would have there.
    """
    return _counted(
        -5,
        3,
        [_policy("both")],
        [_task_group("r0", "both", 3, gpu=1), _task_group("r1", "both", 2, gpu=1)],
    )


def without_fear() -> World:
    """One may use a unit without fear, though its share is less than that."""
    threshold = {"non_preemptible_resource_usage_threshold": {"gpu": 2}}
    return _counted(
        -6,
        2,
        [_policy("first", settings=threshold), _policy("second", weight=3)],
        [_task_group("r0", "first", 2, gpu=1), _task_group("r1", "second", 2, gpu=1)],
    )


def bounded_task_group() -> World:
    """A task group may hold less than there is, and less than it is due."""
    few = Ask("r1", "second", {"gpu": 1}, True, parts=3, limit={"gpu": 1})
    return _counted(
        -7,
        4,
        [_policy("first"), _policy("second")],
        [_task_group("r0", "first", 2, gpu=1), few],
    )


SCENES = {
    "in pieces": in_pieces(),
    "in pieces, and the holder says no": in_pieces(allow_aggressive_preemption=False),
    "one node": one_node(5),
    "one node without back-off": one_node(0),
    "one node with a long back-off": one_node(20),
    "half is enough": half_is_enough(),
    "turns": turns(),
    "inside": inside(),
    "without fear": without_fear(),
    "a bounded family": bounded_task_group(),
    # Who starves aggressively may stop one of red's, and red would then have less than blue has.
    "no fairer": _counted(
        20,
        8,
        [_policy("red"), _policy("blue")],
        [
            Ask("r0", "red", {"gpu": 2}, True),
            Ask("r1", "red", {"gpu": 3}, True),
            Ask("b0", "blue", {"gpu": 3}, True),
            Ask("b1", "blue", {"gpu": 3}, True),
        ],
    ),
    # Two keys of which each policy wants most of the same one.
    "two keys": World(
        21,
        {POOL: {"gpu": 4, "mcpu": 8}},
        [_policy("a"), _policy("c")],
        [
            Ask("c0", "c", {"gpu": 3, "mcpu": 3}, True),
            Ask("c1", "c", {"gpu": 4, "mcpu": 1}, True),
            Ask("a0", "a", {"gpu": 4, "mcpu": 1}, True),
        ],
        SETTINGS | {"consider_allocation_on_fair_share_bound_preemptible": True},
        preset="fair_share",
    ),
    # North is below its share. Its first team is above its own, and south's is not.
    "departments": _counted(
        22,
        6,
        [
            _policy("north"),
            _policy("south"),
            _policy("north-0", parent=f"{POOL}/north"),
            _policy("north-1", parent=f"{POOL}/north"),
        ],
        [
            Ask("n0", "north-0", {"gpu": 1}, True, parts=2),
            Ask("n1", "north-1", {"gpu": 2}, True),
            Ask("s0", "south", {"gpu": 2}, True, parts=2),
            Ask("s1", "south", {"gpu": 1}, True),
        ],
    ),
}

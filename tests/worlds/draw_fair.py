"""Drawing worlds that share fairly: a tree of weights and own settings, and requests of one task or
of many.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from cede.model.amounts import total
from cede.model.shape import Shape, Topology

from .world import Ask, World

POOL = "pool0"
TASKS_MAX = 8  # in one world, of all requests together

# Durations in seconds, as people write them; one step of time is 15 (`explore.STEP`).
STARVES, STARVES_AGGRESSIVELY = 10, 20


def draw_fair(seed: int) -> World:
    """A pool without nodes; starving takes steps of time."""
    rng = Random(seed)
    capacity = {key: rng.randint(2, 5) for key in _keys(rng)}
    policies, teams = _tree(rng, capacity)
    extra = rng.choice(["", "", "completes", "cancels", "tells", "loses"])
    return World(
        seed,
        {POOL: capacity},
        policies,
        _asks(rng, capacity, teams),
        _settings(rng, capacity),
        preset="fair_share",
        **({extra: True} if extra else {}),
    )


def draw_fair_on_nodes(seed: int) -> World:
    """A pool of a few nodes, on which free capacity may be in pieces."""
    rng = Random(seed)
    most = rng.choice([2, 2, 3])
    keys = _keys(rng)
    nodes = [
        {key: most if key == "gpu" else rng.randint(2, 4) for key in keys}
        for _ in range(rng.choice([2, 2, 3]) if most == 2 else 2)
    ]
    capacity = dict(total(nodes))
    policies, teams = _tree(rng, capacity)
    asks = [_shaped(rng, ask, most) for ask in _asks(rng, capacity, teams)]
    extra = rng.choice(["", "", "completes", "completes", "cancels", "tells", "drains"])
    settings = _settings(rng, capacity)
    settings["preemptive_scheduling_backoff"] = rng.choice([0, 5, 5, 20])
    return World(
        seed,
        {POOL: capacity},
        policies,
        asks,
        settings,
        nodes={POOL: nodes},
        preset="fair_share",
        **({extra: True} if extra else {}),
    )


def _keys(rng: Random) -> list[str]:
    return ["gpu"] if rng.random() < 0.6 else ["gpu", "mcpu"]


# The tree --------------------------------------------------------------------------------------


def _tree(rng: Random, capacity: dict[str, int]) -> tuple[list[dict[str, Any]], list[str]]:
    """Policies of one or two levels, and who asks: those at the leaves, now and then one above."""
    policies: list[dict[str, Any]] = []
    teams: list[str] = []
    left = dict(capacity)
    for name in ["north", "south", "west"][: rng.choice([2, 2, 2, 3])]:
        top = _policy(rng, name, capacity, left)
        policies.append(top)
        leaves = [f"{name}-{number}" for number in range(rng.choice([0, 0, 1, 2, 2]))]
        below = dict(top["reserved"])
        for leaf in leaves:
            policies.append(_policy(rng, leaf, capacity, below) | {"parent": f"{POOL}/{name}"})
        teams += leaves
        if not leaves or rng.random() < 0.2:
            teams.append(name)  # work of its own, beside those below
    return policies, teams


def _policy(
    rng: Random, team: str, capacity: dict[str, int], left: dict[str, int]
) -> dict[str, Any]:
    """`left`: what of the guarantee above it nobody has yet."""
    reserved: dict[str, int] = {}
    if rng.random() < 0.3:
        reserved = {key: rng.randint(0, most) for key, most in left.items() if most}
    for key, amount in reserved.items():
        left[key] -= amount
    limit = {}
    if rng.random() < 0.2:
        limit = {key: rng.randint(max(1, reserved.get(key, 0)), capacity[key]) for key in capacity}
    return {
        "pool": POOL,
        "team": team,
        "weight": rng.choice([1, 1, 1, 2, 3]),
        "mode": "fifo" if rng.random() < 0.15 else "fair_share",
        "reserved": {key: amount for key, amount in reserved.items() if amount},
        "limit": limit,
        "settings": _own_settings(rng, capacity) if rng.random() < 0.35 else {},
    }


def _settings(rng: Random, capacity: dict[str, int]) -> dict[str, Any]:
    aggressive, threshold = rng.choice([(0.5, 1.0), (0.5, 1.0), (0.2, 0.8)])
    settings: dict[str, Any] = {
        "fair_share_update_period": 0,
        "fair_share_starvation_timeout": STARVES,
        "fair_share_aggressive_starvation_timeout": STARVES_AGGRESSIVELY,
        "fair_share_starvation_tolerance": rng.choice([0.8, 1.0]),
        "enable_aggressive_starvation": rng.random() < 0.5,
        "allow_aggressive_preemption": rng.random() < 0.8,
        "aggressive_preemption_satisfaction_threshold": aggressive,
        "preemption_satisfaction_threshold": threshold,
        "consider_allocation_on_fair_share_bound_preemptible": rng.random() < 0.5,
    }
    if rng.random() < 0.1:
        settings["non_preemptible_resource_usage_threshold"] = _threshold(rng, capacity)
    if rng.random() < 0.1:
        settings["bypass_max"] = rng.choice([0, 1])
    return settings


def _own_settings(rng: Random, capacity: dict[str, int]) -> dict[str, Any]:
    """One thing that a policy says for itself and those below it."""
    name, value = rng.choice(
        [
            ("fair_share_starvation_tolerance", rng.choice([0.5, 0.8, 1.0])),
            ("fair_share_starvation_timeout", rng.choice([0, 20])),
            ("allow_aggressive_preemption", rng.random() < 0.3),
            ("enable_aggressive_starvation", rng.random() < 0.7),
            ("non_preemptible_resource_usage_threshold", _threshold(rng, capacity)),
        ]
    )
    return {name: value}


def _threshold(rng: Random, capacity: dict[str, int]) -> dict[str, int]:
    return {key: rng.choice([1, 1, 2]) for key in capacity}


# Who asks --------------------------------------------------------------------------------------


def _asks(rng: Random, capacity: dict[str, int], teams: list[str]) -> list[Ask]:
    """More than there is, so that somebody must wait; the first come before others are there."""
    found: list[Ask] = []
    tasks = wanted = 0
    greedy = rng.choice(teams)
    while tasks < TASKS_MAX and (wanted < 1.5 * capacity["gpu"] or rng.random() < 0.5):
        early = wanted < capacity["gpu"] and rng.random() < 0.7
        late = teams if rng.random() < 0.3 else [each for each in teams if each != greedy]
        team = greedy if early else rng.choice(late or teams)
        ask = _ask(rng, len(found), team, capacity, TASKS_MAX - tasks)
        tasks += ask.parts
        wanted += ask.parts * ask.amounts["gpu"]
        found.append(ask)
    return found


def _ask(rng: Random, number: int, team: str, capacity: dict[str, int], left: int) -> Ask:
    """One task, or a task group of two to four that are alike."""
    parts = min(left, rng.choice([1, 1, 1, 1, 2, 2, 3, 4]))
    sizes = [1, 1, 2, 2, 3] if parts == 1 else [1, 1, 1, 2]
    amounts = {
        key: min(rng.choice(sizes), most)
        for key, most in capacity.items()
        if key == "gpu" or rng.random() < 0.7
    }
    limit = {}
    if parts > 1 and rng.random() < 0.2:
        limit = {"gpu": amounts["gpu"] * rng.randint(1, parts - 1)}
    own = {}
    if rng.random() < 0.1:
        own = rng.choice(
            [{"fair_share_starvation_tolerance": 0.5}, {"fair_share_starvation_timeout": 20}]
        )
    return Ask(
        f"r{number}",
        team,
        amounts,
        rng.random() < 0.9,
        parts=parts,
        limit=limit,
        settings=own,
    )


def _shaped(rng: Random, ask: Ask, most: int) -> Ask:
    """On nodes: small or as large as half a node and more, now and then a gang."""
    each = {key: min(amount, most) for key, amount in ask.amounts.items()}
    tasks = rng.choice([1, 1, 1, 2]) if ask.parts == 1 else 1
    shape = Shape(
        each,
        tasks,
        per_node=1 if tasks > 1 and rng.random() < 0.3 else None,
        topology=rng.choice(list(Topology)),
    )
    amounts = {key: amount * tasks for key, amount in each.items()}
    return replace(ask, amounts=amounts, shape=shape, saves=ask.parts == 1 and rng.random() < 0.15)

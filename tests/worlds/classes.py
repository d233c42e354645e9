"""Drawing worlds in which classes decide: nodes that are somebody's home, work that is worth
something, and time that runs. And mixed ones: pools with settings of more than one preset.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from cede.model.amounts import total
from cede.model.shape import Shape

from .claim_checks import CLAIMANT
from .world import Ask, World

POOL = "pool0"

# Durations in seconds, as people write them; one step of time is 15 (`steps.STEP`).
NEARLY_DONE = 20
SHORT, LONG = 30_000, 60_000  # walltimes, in milliseconds

# Three classes each: far apart; within and across the bands of document 004's table; where work
# that nobody saves is protected; and the highest, which nobody stops.
CLASSES = [(1, 4, 8), (2, 3, 4), (3, 5, 6), (0, 7, 9), (4, 7, 10), (4, 4, 5)]


def draw_classes(seed: int) -> World:
    """A pool of two or three nodes, some of which are home to one or two policies."""
    rng = Random(seed)
    nodes = [{"gpu": rng.choice([1, 1, 2])} for _ in range(rng.choice([2, 2, 3]))]
    capacity = dict(total(nodes))
    teams = ["red", "green", "blue"][: rng.choice([2, 2, 3])]
    policies = _with_homes(rng, [_policy(rng, each) for each in teams], len(nodes))
    ages = rng.random() < 0.4
    asks = [_on_nodes(rng, each) for each in _asks(rng, teams, ages)]
    extra = rng.choice(["", "", "completes", "cancels", "tells", "loses", "drains"])
    world = World(
        seed,
        {POOL: capacity},
        policies,
        asks,
        _settings(rng),
        nodes={POOL: nodes},
        preset="classes",
        ages=ages,
        **({extra: True} if extra else {}),
    )
    return _claimed(rng, world)


def _claimed(rng: Random, world: World) -> World:
    """In one world of ten somebody claims nodes, and some of the sensitive work is hers."""
    if world.seed % 10 != 9 or not world.nodes:
        return world
    asks = []
    for ask in world.asks:
        terms = ask.terms | ({"sensitive": True} if rng.random() < 0.3 else {})
        asks.append(replace(ask, terms=terms, owner=rng.choice([CLAIMANT, CLAIMANT, "bob"])))
    return replace(world, asks=asks, claims=True)


# Mixed pools -----------------------------------------------------------------------------------


def draw_mixed(seed: int) -> World:
    """A counted pool, or one of nodes without homes, whose settings come from two presets."""
    rng = Random(seed)
    world = replace(_counted(rng), seed=seed)
    if rng.random() < 0.4:
        world = _of_nodes(rng, world)
    kind = rng.choice([_prices_under_quota, _starving_classes, _reserved_classes, _fair_classes])
    return _claimed(rng, kind(rng, world))


def _counted(rng: Random) -> World:
    capacity = {"gpu": rng.randint(2, 4)}
    teams = ["red", "green", "blue"][: rng.choice([2, 2, 3])]
    left = most = capacity["gpu"]
    policies = []
    for team in teams:
        reserved = rng.randint(0, left) if rng.random() < 0.8 else 0
        left -= reserved
        policies.append(
            {
                "pool": POOL,
                "team": team,
                "priority": rng.randint(0, 2),
                "reserved": {"gpu": reserved} if reserved else {},
                "limit": {"gpu": rng.randint(max(1, reserved), most)} if rng.random() < 0.2 else {},
                "type": rng.choice(["hpc_batch", "hpc_batch", "ml_training", "interactive"]),
                "max_class": 10,
                "allow_sensitive": True,
            }
        )
    ages = rng.random() < 0.3
    extra = rng.choice(["", "", "completes", "cancels", "tells", "loses"])
    asks = _asks(rng, teams, ages)
    asks = [replace(ask, preemptible=rng.random() < 0.9) for ask in asks]
    more = {extra: True} if extra else {}
    return World(0, {POOL: capacity}, policies, asks, ages=ages, **more)


def _of_nodes(rng: Random, world: World) -> World:
    nodes = [{"gpu": 2}, {"gpu": rng.choice([1, 2])}]
    policies = [{**each, "limit": {}, "reserved": {}} for each in world.policies]
    left = sum(each["gpu"] for each in nodes)
    for policy in policies:
        if reserved := rng.randint(0, left):
            policy["reserved"] = {"gpu": reserved}
            left -= reserved
    return replace(
        world,
        pools={POOL: dict(total(nodes))},
        nodes={POOL: nodes},
        policies=policies,
        asks=[_on_nodes(rng, each) for each in world.asks],
    )


def _prices_under_quota(rng: Random, world: World) -> World:
    settings = {
        "price": "checkpoint",
        "victim_order": rng.choice(["price", "rank_then_price"]),
        "max_victims": rng.choice([0, 0, 1, 2]),
        "value_bound": rng.random() < 0.3,
        "near_completion_threshold": rng.choice([0, NEARLY_DONE]),
        "wait_first": rng.random() < 0.3,
    }
    return replace(world, preset="quota", settings=settings)


def _starving_classes(rng: Random, world: World) -> World:
    """Somebody of a higher class waits until it starves. Who starves is below its fair share."""
    starving = {
        "share": "fair_share",
        "patience": "starvation",
        "fair_share_update_period": 0,
        "fair_share_starvation_timeout": 10,
        "fair_share_starvation_tolerance": rng.choice([0.8, 1.0]),
        "preemptive_scheduling_backoff": rng.choice([0, 5]),
    }
    return replace(world, preset="classes", settings=_settings(rng) | starving, ages=True)


def _reserved_classes(rng: Random, world: World) -> World:
    settings = _settings(rng) | {"precedence": rng.choice(["rank_first", "rights_first"])}
    return replace(world, preset="classes", settings=settings)


def _fair_classes(rng: Random, world: World) -> World:
    settings = {
        "rank": "class",
        "precedence": rng.choice(["rights_first", "rank_first"]),
        "fair_share_update_period": 0,
        "fair_share_starvation_timeout": 10,
        "fair_share_aggressive_starvation_timeout": 20,
        "enable_aggressive_starvation": rng.random() < 0.5,
        "preemptive_scheduling_backoff": rng.choice([0, 5]),
        "max_victims": rng.choice([0, 0, 2]),
        "over_limit": "drain",
    }
    return replace(world, preset="fair_share", settings=settings, ages=True)


# A class takes the place in the share of a lower one of its own policy, while a borrower of a
# higher class wants what they give up.
EXCHANGE = World(
    0,
    {POOL: {"gpu": 2}},
    [
        {"pool": POOL, "team": "red", "priority": 0, "reserved": {"gpu": 2}},
        {"pool": POOL, "team": "blue", "priority": 0},
    ],
    [
        Ask("r0", "red", {"gpu": 1}, preemptible=True, terms={"preemption_class": 3}),
        Ask("r1", "blue", {"gpu": 1}, preemptible=True, terms={"preemption_class": 9}),
        Ask("r2", "red", {"gpu": 2}, preemptible=True, terms={"preemption_class": 5}),
    ],
    {"broker": False, "precedence": "rights_first", "protect_unsaved": False, "order": "age"},
    preset="classes",
    tells=True,
)

# Red's r2 would have room without r1, and its share without r0: who only gives rights stays.
RIGHTS_ALONE = replace(
    EXCHANGE,
    pools={POOL: {"gpu": 3}},
    asks=[
        Ask("r0", "red", {"gpu": 1}, preemptible=True, terms={"preemption_class": 3}),
        Ask("r1", "blue", {"gpu": 2}, preemptible=True, terms={"preemption_class": 9}),
        Ask("r2", "red", {"gpu": 2}, preemptible=True, terms={"preemption_class": 5}),
    ],
)


# Settings, policies and asks -------------------------------------------------------------------


def _settings(rng: Random) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "broker": False,  # who is asked to save goes on: its timers would never end
        "precedence": rng.choice(["rank_first"] * 3 + ["home_first"] * 2),
        "max_victims": rng.choice([1, 2, 3]),
        "near_completion_threshold": rng.choice([0, NEARLY_DONE, NEARLY_DONE]),
        "protect_unsaved": rng.random() < 0.5,
        "wait_first": rng.random() < 0.4,
        "value_bound": rng.random() < 0.4,
        "class_bands": rng.random() < 0.2,
        "order": rng.choice(["age", "age", "score"]),
    }
    if rng.random() < 0.3:
        settings["bypass_max"] = rng.choice([1, 64])
    if rng.random() < 0.2:
        settings["per_victim_cost"] = 0
    return settings


def _policy(rng: Random, team: str) -> dict[str, Any]:
    return {
        "pool": POOL,
        "team": team,
        "type": rng.choice(["hpc_batch"] * 3 + ["ml_training", "service", "interactive"]),
        "max_class": 10,
        "allow_sensitive": True,
        "allow_lending": rng.random() < 0.8,
        "allow_borrowing": rng.random() < 0.9,
        "max_borrow_pct": rng.choice([0.5, 1.0, 1.0]),
    }


def _with_homes(rng: Random, policies: list[dict[str, Any]], nodes: int) -> list[dict[str, Any]]:
    """One or two policies at home somewhere; now and then nobody is."""
    names = [f"{POOL}-{number}" for number in range(nodes)]
    rng.shuffle(names)
    made = [dict(each) for each in policies]
    for policy in made[: rng.choice([0, 1, 1, 2, 2])]:
        count = min(rng.choice([1, 1, 2]), len(names))
        if count:
            policy["home"], names = names[:count], names[count:]
    return made


def _asks(rng: Random, teams: list[str], ages: bool) -> list[Ask]:
    classes = rng.choice(CLASSES)
    found = []
    for number in range(rng.choice([3, 4, 4, 5])):
        terms: dict[str, Any] = {"preemption_class": rng.choice(classes)}
        if rng.random() < 0.1:
            terms["sensitive"] = True
        found.append(
            Ask(
                f"r{number}",
                rng.choice(teams),
                {"gpu": rng.choice([1, 1, 2])},
                preemptible=True,
                walltime=rng.choice([None, SHORT, LONG] if ages else [None, None, LONG]),
                saves=rng.random() < 0.4,
                terms=terms,
            )
        )
    return found


def _on_nodes(rng: Random, ask: Ask) -> Ask:
    """One task, or a gang of two that may have to sit on two nodes."""
    tasks = rng.choice([1, 1, 2])
    each = {"gpu": 1 if tasks == 2 else ask.amounts["gpu"]}
    per_node = rng.choice([None, 1]) if tasks == 2 else None
    labels = {"kind": "a"} if rng.random() < 0.1 else {}
    shape = Shape(each, tasks, per_node=per_node, labels=labels)
    return replace(ask, amounts={"gpu": each["gpu"] * tasks}, shape=shape)

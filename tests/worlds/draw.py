"""Drawing small worlds: sizes are biased small, because that is where rules collide."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from cede.model.amounts import total
from cede.model.shape import Shape, Topology

from .classes import draw_classes, draw_mixed
from .draw_fair import draw_fair, draw_fair_on_nodes
from .world import Ask, World

# Worlds from this number on are made of nodes; from this one on their policies form a tree.
NODES = 1_000_000_000
TREES = 2_000_000_000
FAIR = 3_000_000_000  # from this one on they share fairly
FAIR_ON_NODES = 4_000_000_000  # and do that on nodes
CLASSES = 5_000_000_000  # classes decide, on nodes some of which are a home
MIXED = 6_000_000_000  # settings of two presets
KINDS = {
    "quota": 0,
    "nodes": NODES,
    "trees": TREES,
    "fair": FAIR,
    "fair on nodes": FAIR_ON_NODES,
    "classes": CLASSES,
    "mixed": MIXED,
}


def draw(seed: int) -> World:
    """World number `seed`."""
    if seed >= MIXED:
        return draw_mixed(seed)
    if seed >= CLASSES:
        return draw_classes(seed)
    if seed >= FAIR_ON_NODES:
        return draw_fair_on_nodes(seed)
    if seed >= FAIR:
        return draw_fair(seed)
    if seed >= TREES:
        return draw_tree(seed)
    if seed >= NODES:
        return draw_on_nodes(seed)
    rng = Random(seed)
    keys = ["gpu"] if rng.random() < 0.6 else ["gpu", "mcpu"]
    pools = {
        f"pool{number}": {key: rng.randint(2, 6) for key in keys}
        for number in range(1 if rng.random() < 0.75 else 2)
    }
    teams = [f"team{number}" for number in range(rng.choice([2, 2, 2, 3]))]
    policies = [
        policy
        for name, capacity in pools.items()
        for policy in _policies(rng, name, capacity, teams)
    ]
    asks = [_ask(rng, number, teams, pools) for number in range(rng.choice([3, 4, 5, 6, 7]))]
    if rng.random() < 0.25:  # with walltimes a blocked head may have capacity withheld for it
        asks = [replace(ask, walltime=rng.choice([None, 1_000, 9_000])) for ask in asks]
    settings: dict[str, Any] = {"precedence": rng.choice(["rights_first"] * 3 + ["rank_first"])}
    if rng.random() < 0.3:
        settings["bypass_max"] = rng.choice([0, 1])
    extra = rng.choice(["", "", "completes", "cancels", "tells", "loses"])
    return World(seed, pools, policies, asks, settings, **({extra: True} if extra else {}))


def draw_on_nodes(seed: int) -> World:
    """A world whose pools are made of nodes, with gangs and work that can be saved."""
    rng = Random(seed)
    keys = ["gpu"] if rng.random() < 0.6 else ["gpu", "mcpu"]
    nodes = {
        f"pool{number}": [
            {key: rng.randint(1, 3) for key in keys} for _ in range(rng.choice([2, 2, 3]))
        ]
        for number in range(1 if rng.random() < 0.85 else 2)
    }
    pools = {name: dict(total(many)) for name, many in nodes.items()}
    teams = [f"team{number}" for number in range(rng.choice([2, 2, 2, 3]))]
    policies = [
        policy
        for name, capacity in pools.items()
        for policy in _policies(rng, name, capacity, teams)
    ]
    asks = [
        _shaped(rng, _ask(rng, number, teams, pools)) for number in range(rng.choice([3, 4, 5, 6]))
    ]
    if rng.random() < 0.25:
        asks = [replace(ask, walltime=rng.choice([None, 1_000, 9_000])) for ask in asks]
    settings: dict[str, Any] = {"precedence": rng.choice(["rights_first"] * 3 + ["rank_first"])}
    if rng.random() < 0.3:
        settings["bypass_max"] = rng.choice([0, 1])
    extra = rng.choice(["", "", "completes", "cancels", "tells", "loses", "drains"])
    more = {extra: True} if extra else {}
    return World(seed, pools, policies, asks, settings, nodes=nodes, **more)


def draw_tree(seed: int) -> World:
    """A world of one pool whose policies form a tree of two or three levels, some with limits."""
    rng = Random(seed)
    world = draw_on_nodes(seed) if rng.random() < 0.3 else draw(rng.randrange(NODES))
    name = next(iter(world.pools))
    capacity = world.pools[name]
    tops = _policies(rng, name, capacity, ["north", "south"][: rng.choice([1, 2, 2])])
    policies, teams = [], []
    for top in tops:
        policies.append(top)
        branches = [top]
        if rng.random() < 0.3:  # a level between
            branches = _below(rng, name, capacity, top, [f"{top['team']}-mid"])
            policies += branches
        for branch in branches:
            leaves = [f"{branch['team']}-{number}" for number in range(rng.choice([1, 2, 2]))]
            below = _below(rng, name, capacity, branch, leaves)
            policies += below
            teams += [each["team"] for each in below]
        if rng.random() < 0.2:
            teams.append(top["team"])  # work of its own beside those below
    teams = teams or ["north"]
    asks = [replace(ask, team=rng.choice(teams)) for ask in world.asks]
    return replace(
        world,
        seed=seed,
        pools={name: capacity},
        nodes={name: world.nodes[name]} if world.nodes else {},
        policies=policies,
        asks=asks,
    )


def _below(
    rng: Random, pool: str, capacity: dict[str, int], parent: dict[str, Any], teams: list[str]
) -> list[dict[str, Any]]:
    most = {key: parent["reserved"].get(key, 0) for key in capacity}
    below = _policies(rng, pool, capacity, teams)
    left = dict(most)
    for policy in below:
        policy["parent"] = f"{pool}/{parent['team']}"
        for key in capacity:
            got = min(policy["reserved"].get(key, 0), left[key])
            left[key] -= got
            if got:
                policy["reserved"][key] = got
            else:
                policy["reserved"].pop(key, None)
    return below


def _shaped(rng: Random, ask: Ask) -> Ask:
    """One task or a gang; now and then with a wish, or with work that can be saved."""
    each = {key: min(amount, 2) for key, amount in ask.amounts.items()}
    tasks = rng.choice([1, 1, 1, 2, 2, 3])
    shape = Shape(
        each,
        tasks,
        per_node=rng.choice([None, None, 1]),
        labels={"kind": "a"} if rng.random() < 0.15 else {},
        topology=rng.choice(list(Topology)),
    )
    amounts = {key: amount * tasks for key, amount in each.items()}
    return replace(ask, amounts=amounts, shape=shape, saves=rng.random() < 0.3)


def _policies(
    rng: Random, pool: str, capacity: dict[str, int], teams: list[str]
) -> list[dict[str, Any]]:
    left = {key: amount if rng.random() < 0.85 else 0 for key, amount in capacity.items()}
    policies = []
    for team in teams:
        if len(teams) > 1 and rng.random() < 0.1:
            continue
        reserved = {key: rng.randint(0, left[key]) for key in capacity}
        for key, amount in reserved.items():
            left[key] -= amount
        limit = {
            key: rng.choice([total, total, rng.randint(max(1, reserved[key]), total)])
            for key, total in capacity.items()
        }
        policies.append(
            {
                "pool": pool,
                "team": team,
                "priority": rng.randint(0, 2),
                "reserved": {key: amount for key, amount in reserved.items() if amount},
                "limit": limit if rng.random() < 0.5 else {},
            }
        )
    return policies


def _ask(rng: Random, number: int, teams: list[str], pools: dict[str, dict[str, int]]) -> Ask:
    keys = next(iter(pools.values()))
    amounts = {
        key: rng.choice([1, 1, 2, 2, 3]) for key in keys if key == "gpu" or rng.random() < 0.7
    }
    return Ask(f"r{number}", rng.choice(teams), amounts, rng.random() < 0.85)

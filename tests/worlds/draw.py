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
FRAGMENTED = 7_000_000_000  # reserves are held in pieces that are in an owner's way
KINDS = {
    "quota": 0,
    "nodes": NODES,
    "trees": TREES,
    "fair": FAIR,
    "fair on nodes": FAIR_ON_NODES,
    "classes": CLASSES,
    "mixed": MIXED,
    "fragmented": FRAGMENTED,
}


def draw(seed: int) -> World:
    """World number `seed`."""
    if seed >= FRAGMENTED:
        return draw_fragmented(seed)
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


def draw_fragmented(seed: int) -> World:
    """A world in which two teams hold small pieces here and there, one of them more than it
    reserves, and an owner comes back for large ones; now and then in departments.
    """
    rng = Random(seed)
    size = rng.choice([2, 3, 3, 4])
    nodes = [{"gpu": size}, {"gpu": rng.choice([size, size, 2])}]
    if rng.random() < 0.25:
        nodes = [{**each, "mcpu": rng.choice([2, 3, 4])} for each in nodes]
    capacity = dict(total(nodes))
    policies, left = [], dict(capacity)
    for team, most in {"lent": 2, "other": 2, "owner": 9}.items():
        reserved = {key: rng.randint(min(1, n), min(most, n)) for key, n in left.items()}
        left = {key: amount - reserved[key] for key, amount in left.items()}
        priority = rng.choice([0, 0, 1]) if team == "owner" else rng.randint(0, 2)
        made = {"pool": "pool0", "team": team, "priority": priority, "limit": {}}
        policies.append({**made, "reserved": {key: n for key, n in reserved.items() if n}})
    policies = _in_departments(rng, policies)
    fixed = rng.random() < 0.2  # what the other team holds may not be stopped
    asks: list[Ask] = []
    while len(asks) < 9:
        asked = sum(each.amounts["gpu"] for each in asks)
        if asked >= capacity["gpu"] + 2 * size and rng.random() < 0.7:
            break
        number, owner = len(asks), asked >= capacity["gpu"] - 1
        team = "owner" if owner else rng.choice(["lent", "lent", "other"])
        amounts = {"gpu": rng.choice([2, size, size]) if owner else rng.choice([1, 1, 2])}
        if "mcpu" in capacity and rng.random() < 0.7:
            amounts["mcpu"] = rng.choice([1, 1, 2])
        tasks = 1 if owner else rng.choice([1, 1, 1, 2])
        labels = {} if owner or rng.random() < 0.4 else {"kind": rng.choice("ab")}
        if number < 2:  # one of each, on two nodes: neither can be cleared by standing alone
            team, amounts, tasks = ("lent", "other")[number], {"gpu": 1}, 1
            labels = {"kind": "ab"[number]}
        whole = {key: amount * tasks for key, amount in amounts.items()}
        shape = Shape(amounts, tasks, labels=labels, topology=rng.choice(list(Topology)))
        asks.append(Ask(f"r{number}", team, whole, team != "other" or not fixed, shape=shape))
    settings: dict[str, Any] = {"precedence": "rights_first"}
    extra = rng.choice(["", "", "completes", "cancels", "tells", "loses"])
    more = {extra: True} if extra else {}
    made_of = {"pool0": nodes}
    return World(seed, {"pool0": capacity}, policies, asks, settings, nodes=made_of, **more)


def _in_departments(rng: Random, policies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same teams, or some of them below a department that reserves as much or more."""
    below = rng.choice([[], [], ["lent"], ["lent", "owner"], ["lent", "other"]])
    if not below:
        return policies
    inside = [each for each in policies if each["team"] in below]
    dept = {**inside[0], "team": "dept", "reserved": dict(total(e["reserved"] for e in inside))}
    kept = {key: rng.randint(0, n) for key, n in inside[0]["reserved"].items()}
    made = [{**each, "parent": "pool0/dept"} for each in inside]
    made[0]["reserved"] = {key: n for key, n in kept.items() if n}
    return [dept, *made, *(each for each in policies if each not in inside)]


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

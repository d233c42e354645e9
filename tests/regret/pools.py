"""Random pools with seeds, as snapshots: full of holders, with waiters that want their places."""

from __future__ import annotations

from random import Random
from typing import Any

KINDS = ("quota", "trees", "classes", "fair", "fair trees", "fair keys", "nodes", "fair nodes")
COUNTED = KINDS[:6]

Snapshot = dict[str, Any]


def draw(kind: str, seed: int) -> Snapshot:
    rng = Random(f"{kind} {seed}")
    if kind in ("nodes", "fair nodes"):
        return _on_nodes(rng, kind == "fair nodes")
    if kind.startswith("fair"):
        return _fair(rng, kind)
    return _counted(rng, kind)


def _counted(rng: Random, kind: str) -> Snapshot:
    keys = ["gpu"] if rng.random() < 0.6 else ["gpu", "tpu"]
    capacity = {key: rng.randint(4, 8) for key in keys}
    pool: Snapshot = {"name": "p", "preset": "quota", "capacity": capacity}
    policies = _policies(rng, capacity, [f"t{n}" for n in range(rng.randint(2, 4))])
    teams = [each["component"] for each in policies]
    if kind == "trees":
        policies, teams = _tree(rng, capacity)
    if kind == "classes":
        pool["preset"] = "classes"
        # What saves itself may be stopped; what is worth more or starts soon is the price's.
        pool["settings"] = {
            "precedence": rng.choice(["rights_first", "rights_first", "rank_first"]),
            "value_bound": False,
            "protect_unsaved": False,
            "price": rng.choice(["checkpoint", "newest", "fewest"]),
        }
        for policy in policies:
            del policy["priority"]
            policy |= {"max_class": 10}
    elif rng.random() < 0.2:
        pool["settings"] = {"precedence": "rank_first"}
    return _filled(rng, pool, policies, teams, classed=kind == "classes")


def _policies(rng: Random, capacity: dict[str, int], teams: list[str]) -> list[Snapshot]:
    left = dict(capacity)
    found = []
    for team in teams:
        reserved = {key: rng.randint(0, left[key]) for key in capacity}
        for key, amount in reserved.items():
            left[key] -= amount
        most = {
            key: rng.choice([total, total, total, rng.randint(max(1, reserved[key]), total)])
            for key, total in capacity.items()
        }
        priority = rng.choice([1, 5, 5, 9])
        found.append({"component": team, "priority": priority, "reserved": reserved, "limit": most})
    rng.shuffle(found)
    return found


def _tree(rng: Random, capacity: dict[str, int]) -> tuple[list[Snapshot], list[str]]:
    """Departments, some with limits, and their teams; now and then work of a department's own."""
    tops = _policies(rng, capacity, ["north", "south"][: rng.choice([1, 2, 2])])
    policies, teams = [], []
    for top in tops:
        name = top["component"]
        policies.append(top | {"name": name})
        below = _policies(rng, capacity, [f"{name}{n}" for n in range(rng.choice([1, 2, 2, 3]))])
        left = dict(top["reserved"])
        for each in below:
            each["parent"] = name
            for key in capacity:
                each["reserved"][key] = min(each["reserved"][key], left[key])
                left[key] -= each["reserved"][key]
        policies += below
        teams += [each["component"] for each in below]
        if rng.random() < 0.2:
            teams.append(name)
    return policies, teams


def _fair(rng: Random, kind: str) -> Snapshot:
    capacity = {"gpu": rng.randint(4, 10)}
    if kind == "fair keys":
        capacity["cpu"] = rng.randint(4, 10)
    teams = [f"t{n}" for n in range(rng.randint(2, 4))]
    policies: list[Snapshot] = [{"component": e, "weight": rng.choice([1, 1, 2])} for e in teams]
    if kind == "fair trees":
        for each in policies:
            each["parent"] = rng.choice(["north", "south"])
        policies = [{"component": "north"}, {"component": "south"}, *policies]
    pool = {"name": "p", "preset": "fair_share", "capacity": capacity}
    pool["settings"] = _fair_settings(rng)
    return _filled(rng, pool, policies, teams)


def _fair_settings(rng: Random) -> Snapshot:
    """Everybody below its share starves after a second, and no more time passes: who starves later
    is new, and no regret.
    """
    return {
        "fair_share_starvation_timeout": "1s",
        "fair_share_aggressive_starvation_timeout": "1s",
        "enable_aggressive_starvation": rng.random() < 0.5,
        "fair_share_starvation_tolerance": rng.choice([0.8, 1.0]),
        "preemptive_scheduling_backoff": "0s",
    }


def _on_nodes(rng: Random, fair: bool) -> Snapshot:
    each = rng.choice([2, 3, 4])
    nodes = [
        {"name": f"n{n}", "amounts": {"gpu": each}, "labels": {"s": "x"}}
        for n in range(rng.choice([2, 2, 3]))
    ]
    capacity = {"gpu": each * len(nodes)}
    teams = [f"t{n}" for n in range(rng.randint(2, 4))]
    policies = _policies(rng, capacity, teams)
    pool: Snapshot = {"name": "p", "preset": "quota", "nodes": {"s": "x"}}
    if fair:
        policies = [{"component": e, "weight": rng.choice([1, 1, 2])} for e in teams]
        pool |= {"preset": "fair_share", "settings": _fair_settings(rng)}
    found = _filled(rng, pool, policies, teams, capacity=capacity, nodes=nodes)
    return found | {"nodes": nodes}


def _filled(
    rng: Random,
    pool: Snapshot,
    policies: list[Snapshot],
    teams: list[str],
    *,
    classed: bool = False,
    capacity: dict[str, int] | None = None,
    nodes: list[Snapshot] | None = None,
) -> Snapshot:
    """A pool in which some hold and others wait."""
    capacity = capacity or pool["capacity"]
    room = [dict(each["amounts"]) for each in nodes or ()] or [dict(capacity)]
    most = {each["component"]: dict(each.get("limit", capacity)) for each in policies}
    above = {each["component"]: each.get("parent") for each in policies}
    running: list[Snapshot] = []
    for number in range(rng.randint(2, 9)):
        amounts = _ask(rng, capacity, max(each["gpu"] for each in room) if nodes else 4)
        team = rng.choice(teams)
        chain = [team, *([above[team]] if above.get(team) else [])]
        spots = [at for at, free in enumerate(room) if _fits(amounts, free)]
        if not amounts or not spots or not all(_fits(amounts, most[e]) for e in chain):
            continue
        at = rng.choice(spots)
        for left in (room[at], *(most[each] for each in chain)):
            for key, amount in amounts.items():
                left[key] -= amount
        held: Snapshot = {"id": f"h{number}", "component": team, "resources": amounts}
        held |= {"preemptible": True, "allocated_at": number, "started_at": number}
        running.append(held | ({"nodes": [nodes[at]["name"]]} if nodes else {"pool": "p"}))
    requests = []
    for number in range(rng.randint(1, 6)):
        asked: Snapshot = {"id": f"w{number}", "component": rng.choice(teams)}
        asked["resources"] = _ask(
            rng, capacity, max(e["amounts"]["gpu"] for e in nodes or [{"amounts": {"gpu": 4}}])
        )
        asked |= {"preemptible": rng.random() < 0.85, "submitted_at": 10 + number}
        requests.append(asked)
    if classed:
        for each in (*running, *requests):
            each["class"] = rng.choice([1, 3, 5, 8])
    for each in policies:
        each["pool"] = "p"
    return {
        "now": 100,
        "pools": [pool],
        "policies": policies,
        "running": running,
        "requests": requests,
    }


def _ask(rng: Random, capacity: dict[str, int], most: int) -> dict[str, int]:
    found = {key: min(rng.choice([1, 1, 2, 2, 3, 4]), most) for key in capacity}
    if len(found) > 1 and rng.random() < 0.3:
        del found[list(found)[1]]
    return {key: amount for key, amount in found.items() if amount}


def _fits(amounts: dict[str, int], left: dict[str, int]) -> bool:
    return all(amount <= left[key] for key, amount in amounts.items())

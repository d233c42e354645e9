"""Drawing snapshots that no history led to: plans must hold on whatever somebody writes down."""

from __future__ import annotations

from random import Random
from typing import Any

KEYS = ["gpu", "mcpu", "memory_mb", "step_run", "licence"]
BOUNDED = {"gpu", "licence"}  # keys that every pool counts, with or without a row


def draw_snapshot(seed: int) -> dict[str, Any]:
    rng = Random(seed)
    keys = rng.sample(KEYS, rng.choice([1, 1, 2, 2, 3]))
    pools = [_pool(rng, f"pool{number}", keys) for number in range(rng.choice([1, 1, 1, 2, 3]))]
    teams = [f"team{number}" for number in range(rng.randint(1, 5))]
    policies = [policy for pool in pools for policy in _policies(rng, pool, teams)]
    free = {pool["name"]: dict(pool["capacity"]) for pool in pools}
    running = [
        holder
        for number in range(rng.randint(0, 10) if policies else 0)
        if (holder := _holder(rng, f"held{number}", rng.choice(policies), free, keys))
    ]
    waiting = [
        _waiter(rng, f"asked{number}", policies, keys)
        for number in range(rng.randint(0, 10) if policies else 0)
    ]
    return {
        "now": 100,
        "pools": pools,
        "policies": policies,
        "running": running,
        "requests": waiting,
    }


def _pool(rng: Random, name: str, keys: list[str]) -> dict[str, Any]:
    some = [key for key in keys if rng.random() < 0.85] or keys[:1]
    settings: dict[str, Any] = {}
    if rng.random() < 0.3:
        settings["precedence"] = "rank_first"
    if rng.random() < 0.3:
        settings["bypass_max"] = rng.randint(0, 2)
    if rng.random() < 0.2:
        settings["min_run"] = rng.randint(0, 50)
    if rng.random() < 0.1:
        settings["reclaim_min_run"] = rng.randint(0, 50)
    capacity = {key: rng.randint(1, 12) for key in some}
    return {"name": name, "capacity": capacity, "settings": settings}


def _policies(rng: Random, pool: dict[str, Any], teams: list[str]) -> list[dict[str, Any]]:
    left = dict(pool["capacity"])
    policies = []
    for team in teams:
        if rng.random() < 0.2:
            continue
        reserved = {key: rng.randint(0, left[key]) for key in left if rng.random() < 0.7}
        for key, amount in reserved.items():
            left[key] -= amount
        limit = {
            key: rng.randint(reserved.get(key, 0), total)
            for key, total in pool["capacity"].items()
            if rng.random() < 0.4
        }
        rank = {"priority": rng.choice([0, 1, 10, 100]), "reserved": reserved, "limit": limit}
        policies.append({"pool": pool["name"], "component": team, **rank})
    return policies


def _amounts(rng: Random, keys: list[str], most: int) -> dict[str, int]:
    some = [key for key in keys if rng.random() < 0.7] or keys[:1]
    return {key: rng.randint(1, most) for key in some}


def _holder(
    rng: Random, name: str, policy: dict[str, Any], free: dict[str, dict[str, int]], keys: list[str]
) -> dict[str, Any] | None:
    room, amounts = free[policy["pool"]], _amounts(rng, keys, 4)
    if any(
        amount > room.get(key, 0 if key in BOUNDED else amount) for key, amount in amounts.items()
    ):
        return None
    for key in amounts.keys() & room.keys():
        room[key] -= amounts[key]
    holder = {"id": name, "component": policy["component"], "pool": policy["pool"]}
    holder |= {"resources": amounts, "preemptible": rng.random() < 0.8}
    holder["allocated_at"] = rng.randint(0, 100)
    if rng.random() < 0.25:
        holder["state"] = rng.choice(["preempting"] * 4 + ["lost"])
    if rng.random() < 0.2:
        holder["retries"] = rng.randint(0, 2)
    if rng.random() < 0.4:
        holder["walltime"] = rng.randint(1, 300)
    return holder


def _waiter(
    rng: Random, name: str, policies: list[dict[str, Any]], keys: list[str]
) -> dict[str, Any]:
    policy, amounts = rng.choice(policies), _amounts(rng, keys, 6)
    waiter = {"id": name, "component": policy["component"], "resources": amounts}
    waiter |= {"preemptible": rng.random() < 0.8, "submitted_at": rng.randint(0, 100)}
    if rng.random() < 0.2:
        waiter["walltime"] = rng.randint(1, 300)
    if rng.random() < 0.1:
        waiter["not_before"] = rng.randint(90, 200)
    if rng.random() < 0.1:
        waiter["bypassed"] = rng.randint(0, 70)
    if rng.random() < 0.1:
        waiter["earmark"] = {"pool": policy["pool"], "amounts": amounts}
    return waiter

"""`python -m tests.fair.rest --pools 60`: random pools that share fairly, run to rest.

Counts the pools that rest although somebody below its share could take by the rule of fair takings,
and those that never come to rest. The rule is `tests/worlds/fair_rule.py`, from the definition.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import combinations
from random import Random
from typing import Any, NamedTuple

from cede.engine.state.state import State
from cede.sim import plan
from cede.snapshot.reader import load
from tests.worlds.checks import own_room_ok
from tests.worlds.fair_checks import Fairness
from tests.worlds.fair_rule import Rule

KINDS = ("flat", "tree", "two keys")
HORIZON = 3_600  # seconds: longer than anybody's patience
_SETS_MAX = 400  # of holders, tried for one waiter


class Rested(NamedTuple):
    """How a pool came to rest, if it did: the waiters that could have taken, with whom."""

    loops: bool
    unserved: tuple[str, ...]


def draw(seed: int) -> dict[str, Any]:
    """A pool in which early teams hold everything and others come later; the kinds in turn."""
    rng = Random(seed)
    kind = KINDS[seed % len(KINDS)]
    capacity = {"gpu": rng.randint(6, 16)}
    if kind == "two keys":
        capacity["cpu"] = rng.randint(6, 16)
    settings = {
        "enable_aggressive_starvation": rng.random() < 0.5,
        "fair_share_starvation_tolerance": rng.choice([0.8, 1.0]),
    }
    teams = [f"t{n}" for n in range(rng.randint(2, 4))]
    policies = [{"name": each, "weight": rng.choice([1, 1, 2])} for each in teams]
    if kind == "tree":
        for each in policies:
            each["parent"] = rng.choice(["north", "south"])
        policies = [{"name": "north"}, {"name": "south"}, *policies]
    running, left = [], dict(capacity)
    early = teams[: rng.randint(1, len(teams))]
    while len(running) < 9:
        amounts = _ask(rng, capacity)
        if any(amount > left[key] for key, amount in amounts.items()):
            break
        for key, amount in amounts.items():
            left[key] -= amount
        number = len(running)
        running.append(
            {
                "id": f"r{number}",
                "policy": rng.choice(early),
                "resources": amounts,
                "started_at": number,
            }
        )
    requests = [
        {"id": f"w{n}", "policy": rng.choice(teams), "resources": _ask(rng, capacity)}
        for n in range(rng.randint(2, 6))
    ]
    return {
        "now": 100,
        "pools": [
            {"name": "p", "preset": "fair_share", "capacity": capacity, "settings": settings}
        ],
        "policies": policies,
        "running": running,
        "requests": requests,
    }


def _ask(rng: Random, capacity: dict[str, int]) -> dict[str, int]:
    found = {key: rng.choice([1, 1, 2, 2, 3, 4, 5]) for key in capacity}
    if len(found) > 1 and rng.random() < 0.2:
        del found["cpu"]
    return found


def run(seed: int) -> Rested:
    state = load(draw(seed))
    result = plan.on_until_rest(state, HORIZON)
    return Rested(not result["at_rest"], tuple(unserved(state)))


def unserved(state: State) -> Iterator[str]:
    """Waiters of a policy below its share for whom a fair taking exists."""
    for pool in state.pools.values():
        rule, now = Rule(state, pool), Fairness(state, pool, {})
        for waiter in list(state.waiting()):
            for policy in state.places(waiter.id):
                if not own_room_ok(state, waiter, policy):
                    continue
                if found := _fair_taking(rule, now, waiter, policy):
                    yield f"{waiter.id} could take {', '.join(found)}"


def _fair_taking(rule: Rule, now: Fairness, waiter: Any, policy: Any) -> list[str]:
    legal = [each for each in now.victims(waiter, policy, ()) if _is_other(now, each, policy)]
    tried = 0
    for size in range(1, len(legal) + 1):
        for chosen in combinations(legal, size):
            tried += 1
            if tried > _SETS_MAX:
                return []
            mine = (1 << 30, 0)  # nobody was promised anything at rest
            if now.is_enough(waiter, policy, chosen, mine) and not rule.unfair(
                waiter, policy, chosen
            ):
                return list(chosen)
    return []


def _is_other(now: Fairness, allocation_id: str, policy: Any) -> bool:
    return now.state.allocations[allocation_id].policy_id != policy.id


def main() -> int:
    parser = argparse.ArgumentParser(prog="rest", description=__doc__)
    parser.add_argument("--pools", type=int, default=60, help="how many pools")
    parser.add_argument("--first", type=int, default=0, help="the first pool's number")
    arguments = parser.parse_args()
    loops = resting = 0
    for seed in range(arguments.first, arguments.first + arguments.pools):
        found = run(seed)
        loops += found.loops
        resting += bool(found.unserved)
        for each in found.unserved:
            print(f"pool {seed} ({KINDS[seed % len(KINDS)]}): {each}")
    print(f"{arguments.pools} pools: {resting} rest unfairly, {loops} never rest")
    return 1 if loops or resting else 0


if __name__ == "__main__":
    sys.exit(main())

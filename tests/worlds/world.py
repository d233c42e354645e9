"""Drawing small worlds: sizes are biased small, because that is where rules collide."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from cede.engine import edits
from cede.engine.state import State
from cede.model.subject import Subject


@dataclass(frozen=True)
class Ask:
    """One request that will arrive."""

    id: str
    team: str
    amounts: dict[str, int]
    preemptible: bool
    walltime: int | None = None


@dataclass(frozen=True)
class World:
    seed: int
    pools: dict[str, dict[str, int]]
    policies: list[dict[str, Any]]
    asks: list[Ask]
    settings: dict[str, Any] = field(default_factory=dict)
    completes: bool = False  # holders may finish by themselves at any time
    cancels: bool = False  # waiters with an earmark may give up at any time
    tells: bool = False  # learning that one must stop is a step of its own
    loses: bool = False  # one leaving holder may fall silent for good

    def state(self) -> State:
        state = State()
        for name, capacity in self.pools.items():
            edits.create_pool(state, id=name, name=name, capacity=capacity, settings=self.settings)
        for policy in self.policies:
            fields = dict(policy)
            subject = Subject("team", fields.pop("team"))
            pool = fields.pop("pool")
            edits.attach_policy(
                state, id=f"{pool}/{subject.name}", pool_id=pool, subject=subject, **fields
            )
        state.drain()
        return state


def draw(seed: int) -> World:
    """World number `seed`."""
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

"""Fair shares for Prometheus: every policy of the pools that share fairly, with its parts.

Shares are read from the writer's state, as `cede shares` reads them; where this server does not
lead, or the read takes too long, the other series are answered without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cede.engine.explain.shares import Row, view_of
from cede.engine.fair.tree import Kind
from cede.engine.state.state import State
from cede.model.bounds import SECOND

_PARTS = {
    "fair": "fair_share",
    "strong": "strong_share",
    "integral": "integral_share",
    "weighed": "weighed_share",
    "usage": "usage_share",
    "demand": "demand_share",
}


def read_shares(state: State, now: int) -> bytes:
    """Return the policies of all pools that share fairly."""
    found = []
    for pool in sorted(state.pools.values(), key=lambda each: each.name):
        if state.ledgers[pool.id].fair:
            rows = view_of(state, pool.id, now).rows
            policies = (each for each in rows if each.kind is Kind.POLICY)
            found += [_shown(pool.name, each, now) for each in policies]
    text: bytes = orjson.dumps(found)
    return text


def _shown(pool: str, row: Row, now: int) -> dict[str, Any]:
    since = row.below_since
    return {
        "pool": pool,
        "policy": row.name,
        "shares": {part: dict(getattr(row, name)) for part, name in _PARTS.items()},
        "volume": dict(row.volume),
        "satisfaction": row.satisfaction,
        "status": str(row.status),
        "starvation": str(row.starvation),
        "below": 0 if since is None else max(now - since, 0) / SECOND,
    }


class ShareGauges(Collector):
    """The shares of the last read."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def take(self, read: bytes) -> None:
        self.rows = orjson.loads(read)

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        own = ["pool", "policy"]
        shares = GaugeMetricFamily(
            "cede_share",
            "Parts of a pool that a policy is due, by why, uses and wants.",
            labels=[*own, "part", "key"],
        )
        volumes = GaugeMetricFamily(
            "cede_share_volume", "What a policy has saved up over time.", labels=[*own, "key"]
        )
        satisfied = GaugeMetricFamily(
            "cede_share_satisfaction", "What is used of a policy's fair share.", labels=own
        )
        status = GaugeMetricFamily(
            "cede_share_status", "Whether it has its share.", labels=[*own, "status", "starvation"]
        )
        below = GaugeMetricFamily(
            "cede_share_below_seconds", "For how long it has been below its share.", labels=own
        )
        for row in self.rows:
            names = [row["pool"], row["policy"]]
            for part, keys in row["shares"].items():
                for key, value in keys.items():
                    shares.add_metric([*names, part, key], value)
            for key, value in row["volume"].items():
                volumes.add_metric([*names, key], value)
            satisfied.add_metric(names, row["satisfaction"])
            status.add_metric([*names, row["status"], row["starvation"]], 1)
            below.add_metric(names, row["below"])
        yield from (shares, volumes, satisfied, status, below)

"""The cases of another system, read into what our functions take."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cede.engine.rights.price import PriceSettings, Stopping
from cede.model.stopping import Checkpoint

CASES: dict[str, Any] = json.loads((Path(__file__).parent / "cases.json").read_text())
NOW = 1_000_000_000  # milliseconds


@dataclass(frozen=True)
class Holder:
    """One that holds, as a case tells it; times in seconds."""

    id: int
    tenant: str
    preemption_class: int
    age: int | None
    walltime: int | None
    nodes: tuple[str, ...]
    checkpoint: str
    running: bool
    sensitive: bool
    bursting: bool

    def stopping(self) -> Stopping:
        return Stopping(
            now=NOW,
            checkpoint=Checkpoint(self.checkpoint),
            started_at=None if self.age is None else NOW - self.age * 1000,
            walltime=None if self.walltime is None else self.walltime * 1000,
            nodes=len(self.nodes),
            bursting=self.bursting,
        )


@dataclass(frozen=True)
class Case:
    name: str
    preemption_class: int
    nodes: int
    max_victims: int
    threshold: float
    holders: tuple[Holder, ...]
    victims: list[int] | None  # None: there is no way
    costs: list[float]
    freed: list[str]
    can_free: int

    @property
    def settings(self) -> PriceSettings:
        return PriceSettings(self.threshold, burst_discount=True)


def _preemptions() -> Iterator[Case]:
    for record in CASES["preemption"]:
        expected = record["expected"] or {"victims": None, "costs": [], "freed": ""}
        freed = expected["freed"].split()
        yield Case(
            name=record["name"],
            preemption_class=record["class"],
            nodes=record["nodes"],
            max_victims=record["max_victims"],
            threshold=record["threshold"],
            holders=tuple(_holder(row, record["usage"]) for row in record["holders"]),
            victims=expected["victims"],
            costs=expected["costs"],
            freed=freed,
            can_free=record.get("can_free", len(freed)),
        )


def _holder(row: list[Any], usage: dict[str, Any]) -> Holder:
    number, tenant, rank, age, walltime, nodes, checkpoint, running, sensitive = row
    target, actual, burst = usage.get(tenant, (0, 0, None))
    bursting = burst is not None and actual > target
    place = tuple(nodes.split())
    return Holder(
        number, tenant, rank, age, walltime, place, checkpoint, running, sensitive, bursting
    )


PREEMPTIONS = list(_preemptions())

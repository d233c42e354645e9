"""Usage: amounts times held time, as exact integers.

Held time is from the grant, from which on the units are taken, to the end, or to now. A caller that
sums in a database includes its sums; the arithmetic is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cede.model.amounts import Amounts, add_to
from cede.model.bounds import BUDGET_WINDOW, HOUR
from cede.model.tenant import Tenant

GPU = "gpu"
# The only label by which reports still tell removed requests apart. Other labels can have as many
# values as there are requests, and a row for each would grow without end.
PROJECT = "project"


class Spell(NamedTuple):
    """One allocation: its nodes, its amounts, its begin and its end; None: it still holds them."""

    nodes: int
    amounts: Amounts
    begin: int
    end: int | None = None


@dataclass(slots=True)
class Usage:
    """A sum of spells, in units times milliseconds."""

    node_time: int = 0
    amount_time: dict[str, int] = field(default_factory=dict)

    def add(self, nodes: int, amounts: Amounts, milliseconds: int) -> None:
        self.node_time += nodes * milliseconds
        for key, amount in amounts.items():
            self.amount_time[key] = self.amount_time.get(key, 0) + amount * milliseconds

    def include(self, node_time: int, amount_time: Mapping[str, int]) -> None:
        """Add sums that were made elsewhere."""
        self.node_time += node_time
        add_to(self.amount_time, amount_time)

    @property
    def node_hours(self) -> float:
        return self.node_time / HOUR

    @property
    def gpu_hours(self) -> float:
        return self.hours(GPU)

    def hours(self, key: str) -> float:
        return self.amount_time.get(key, 0) / HOUR


def used(spells: Iterable[Spell], now: int, window: int = BUDGET_WINDOW) -> Usage:
    """The sum of the spells that began inside the window."""
    found = Usage()
    for each in spells:
        if each.begin >= now - window:
            found.add(
                each.nodes, each.amounts, (now if each.end is None else each.end) - each.begin
            )
    return found


def budget_fraction(tenant: Tenant, usage: Usage) -> float | None:
    """The used part of a tenant's budget, of the budget that it has used more of; None without a
    budget.
    """
    parts = [
        hours / budget
        for hours, budget in (
            (usage.gpu_hours, tenant.gpu_hours_budget),
            (usage.node_hours, tenant.node_hours_budget),
        )
        if budget is not None
    ]
    return max(parts, default=None)

"""A tenant: the account on which requests run, across all pools, with its quotas and budgets.

Requests name their tenant. A name without a tenant is no mistake: it has no quota and no budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cede.model import bounds
from cede.model.errors import Invalid, choices
from cede.model.fields import Count, Ratio, declared, fields_of, read

_AMOUNT = Count(0, bounds.AMOUNT_MAX)
_HOURS = Ratio(bounds.BUDGET_HOURS_MIN, bounds.BUDGET_HOURS_MAX)


@dataclass(frozen=True, slots=True)
class Tenant:
    """Quotas bind at once; budgets are hours in a rolling window and only lower a score."""

    id: str
    name: str
    max_nodes: int | None = declared(_AMOUNT, "Nodes in use at once, in all pools.", None)
    max_concurrent: int | None = declared(
        _AMOUNT, "Requests that have not ended, waiting ones too.", None
    )
    gpu_hours_budget: float | None = declared(
        _HOURS, "GPU-hours in the last 90 days; whoever has used them comes later.", None
    )
    node_hours_budget: float | None = declared(_HOURS, "The same of node-hours.", None)
    fair_share_target: float = declared(
        Ratio(0, 1), "The part of all nodes that it should have.", 0
    )
    burst_allowance: float | None = declared(
        Ratio(0, bounds.BURST_MAX), "How far it may go beyond its target while much is idle.", None
    )
    created: str = ""
    edited: int = 0  # the place in the journal of its last edit

    @property
    def budgeted(self) -> bool:
        return self.gpu_hours_budget is not None or self.node_hours_budget is not None


FIELDS = tuple(each.name for each in fields_of(Tenant))


def parse_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given fields of a tenant, parsed; None removes a bound."""
    for name in given:
        if name not in FIELDS:
            raise Invalid(name, f"unknown; {choices(name, FIELDS)}")
    usual = {each.name: each.default for each in fields_of(Tenant) if each.name in given}
    return usual | read(Tenant, given)

"""A tenant: on whose account requests run, across all pools, and how much it may have.

Requests name it. A name that no tenant has is no mistake: then there is no quota and no budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cede.model import bounds
from cede.model.amounts import parse_amount
from cede.model.errors import Invalid
from cede.model.settings import parse_ratio


@dataclass(frozen=True, slots=True)
class Tenant:
    """Quotas bind at once; budgets are hours in a rolling window, and only lower a score."""

    id: str
    name: str
    max_nodes: int | None = None
    max_concurrent: int | None = None  # requests that have not ended, waiting ones too
    gpu_hours_budget: float | None = None
    node_hours_budget: float | None = None
    fair_share_target: float = 0  # a part of all nodes
    burst_allowance: float | None = None
    created: str = ""
    edited: int = 0  # the place in the journal of its last edit

    @property
    def budgeted(self) -> bool:
        return self.gpu_hours_budget is not None or self.node_hours_budget is not None


def parse_fields(given: Mapping[str, object]) -> dict[str, Any]:
    """Those of a tenant's fields that are given; None takes a bound away."""
    for name in given:
        if name not in _PARSERS:
            raise Invalid(name, f"unknown; known are {', '.join(FIELDS)}")
    return {
        name: _USUAL[name] if value is None else _PARSERS[name](value, name)
        for name, value in given.items()
    }


def _hours(value: object, field: str) -> float:
    least, most = bounds.BUDGET_HOURS_MIN, bounds.BUDGET_HOURS_MAX
    return parse_ratio(value, field, least=least, most=most)


_PARSERS: dict[str, Callable[[object, str], Any]] = {
    "max_nodes": parse_amount,
    "max_concurrent": parse_amount,
    "gpu_hours_budget": _hours,
    "node_hours_budget": _hours,
    "fair_share_target": lambda value, field: parse_ratio(value, field, most=1),
    "burst_allowance": lambda value, field: parse_ratio(value, field, most=bounds.BURST_MAX),
}
FIELDS = tuple(_PARSERS)
_USUAL: dict[str, Any] = dict.fromkeys(FIELDS) | {"fair_share_target": 0}

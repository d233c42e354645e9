"""Tenants in a snapshot: their bounds, and the used part of each budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cede.engine.admin import tenant_edits
from cede.engine.state.state import State
from cede.model.fields import said
from cede.model.settings import parse_ratio
from cede.model.tenant import FIELDS, Tenant
from cede.snapshot.fields import at, entry

TENANT = frozenset({"name", "budget_used", *FIELDS})
# Beyond any real use.
_USED_MAX = 10**9


def show_tenants(state: State) -> list[dict[str, Any]]:
    return [
        _show(state, each) for each in sorted(state.tenants.values(), key=lambda each: each.name)
    ]


def _show(state: State, tenant: Tenant) -> dict[str, Any]:
    used = state.budgets.get(tenant.name)
    return {"name": tenant.name, **said(tenant), **({} if used is None else {"budget_used": used})}


def read_tenant(state: State, path: str, value: object) -> None:
    fields = dict(entry(value, path, TENANT))
    with at(path):
        used = fields.pop("budget_used", None)
        name = fields.pop("name", None)
        tenant = tenant_edits.create_tenant(state, id=str(name), name=name, **fields)
        if used is not None:
            state.budgets[tenant.name] = parse_ratio(used, "budget_used", most=_USED_MAX)


def accept_use(state: State) -> None:
    """Mark tenants above their quota as edited: they were above it before it was lowered."""
    for tenant in list(state.tenants.values()):
        held = state.tenancy.held.get(tenant.name, 0)
        if tenant.max_nodes is not None and held > tenant.max_nodes:
            state.put(replace(tenant, edited=state.index))

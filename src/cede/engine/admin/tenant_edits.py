"""Edits of tenants by operators. No edit stops running work: a lower quota refuses new work, and
takes back promises beyond it.
"""

from __future__ import annotations

from dataclasses import replace

from cede.engine.state.state import State
from cede.model.errors import Conflict, NotFound
from cede.model.subject import parse_name
from cede.model.tenant import Tenant, parse_fields


def create_tenant(
    state: State, *, id: str, name: object, created: str = "", **given: object
) -> Tenant:
    """Create a tenant; `given` are fields as people write them."""
    tenant = Tenant(
        id=id,
        name=parse_name(name, "name"),
        created=created,
        edited=state.next_index(),
        **parse_fields(given),
    )
    if tenant.name in state.tenancy.named:
        raise Conflict("name_taken", f"a tenant named {tenant.name} exists already")
    state.put(tenant)
    _take_back(state, tenant)
    state.emit("tenant_created", name=tenant.name)
    return tenant


def update_tenant(state: State, tenant_id: str, **given: object) -> Tenant:
    """Change the given fields of a tenant; None removes a bound."""
    tenant = replace(find_tenant(state, tenant_id), **parse_fields(given))
    tenant = replace(tenant, edited=state.next_index())
    state.put(tenant)
    _take_back(state, tenant)
    state.emit("tenant_updated", name=tenant.name)
    return tenant


def delete_tenant(state: State, tenant_id: str) -> Tenant:
    """Delete a tenant; its requests stay, without a quota."""
    tenant = find_tenant(state, tenant_id)
    state.drop(tenant)
    state.emit("tenant_deleted", name=tenant.name)
    return tenant


def find_tenant(state: State, tenant_id: str) -> Tenant:
    if tenant_id not in state.tenants:
        raise NotFound("tenant", tenant_id)
    return state.tenants[tenant_id]


def _take_back(state: State, tenant: Tenant) -> None:
    """Take back the newest promises beyond the quota: a waiter that may not start must not keep
    others from it.
    """
    if tenant.max_nodes is None:
        return
    counts, owners = state.tenancy, []
    for each in state.waiting():
        if each.earmark is not None and each.terms.tenant == tenant.name:
            owners.append((each.earmark.index, each))
    for _, owner in sorted(owners, key=lambda each: -each[0]):
        taken = counts.held.get(tenant.name, 0) + counts.promised.get(tenant.name, 0)
        if taken <= tenant.max_nodes:
            return
        state.put(replace(owner, earmark=None, withhold=None))

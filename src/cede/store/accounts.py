"""Tenants: the living work of each, and the used part of its budget. Sums over allocations, and
over the days in which those of removed requests are already summed; nothing else is read, so they
are the same after a restart, and after a request was deleted.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    case,
    func,
    or_,
    select,
    text,
)

from cede.model import bounds
from cede.model.lifecycle import RequestStatus
from cede.model.reason import Code
from cede.model.tenant import Tenant
from cede.model.usage import Usage, budget_fraction
from cede.store import rows, schema, views
from cede.store.json_text import decode
from cede.store.reads import Reads, bounded
from cede.store.usage_days import times_from
from cede.store.values import Page, TenantView

_allocations, _requests = schema.allocations.c, schema.requests.c
_tenants, _days = schema.tenants.c, schema.usage_days.c
NODES = func.coalesce(_allocations.nodes, 1)
_ACTIVE = text(schema.ACTIVE)
# Stopped for a waiter, or by a rule that has none: a claim of its node, a limit that was lowered.
STOPPED = or_(
    _allocations.taken_for.is_not(None),
    *(
        _allocations.reason.contains(f'"code":"{code}"', autoescape=True)
        for code in (Code.SENSITIVE_CLAIM, Code.OVER_LIMIT)
    ),
)
# A victim that ended by itself first was not stopped for others.
CAME_BACK = or_(
    _requests.id.is_(None),
    _requests.attempt > _allocations.attempt,
    _requests.status == str(RequestStatus.PREEMPTED),
)


class Accounts(Reads):
    """Tenants. Each call is one snapshot; `now` is an instant on the server's clock."""

    def get_tenant(self, ref: str, now: int) -> TenantView:
        """By id, by name, or by an unambiguous start of an id."""
        with self._readers.begin() as connection:
            tenant_id = views.resolve(connection, schema.tenants, "tenant", ref, named=True)
            return _tenant_views(connection, _tenants.id == tenant_id, 1, now)[0]

    def list_tenants(
        self, now: int, *, cursor: str | None = None, limit: int = bounds.PAGE_DEFAULT
    ) -> Page[TenantView]:
        """By name."""
        with self._readers.begin() as connection:
            where = self._after(connection, "tenants", None, cursor, _tenants.name)
            found = _tenant_views(connection, where, bounded(limit) + 1, now)
            return self._page(
                connection, "tenants", None, found, limit, lambda view: view.tenant.name
            )

    def tenant_counts(self) -> dict[str, tuple[int, int]]:
        """By name: nodes in use, and requests that have not ended."""
        with self._readers.begin() as connection:
            names = list(
                connection.execute(select(_tenants.name).order_by(_tenants.name)).scalars()
            )
            every = select(_tenants.name)
            nodes, alive = _nodes_held(connection, every), _alive(connection, every)
        return {name: (nodes.get(name, 0), alive.get(name, 0)) for name in names}

    def budgets_used(self, now: int) -> dict[str, float]:
        """By the name of every tenant with a budget: the used part of it."""
        with self._readers.begin() as connection:
            return _budgets(connection, _tenants.id.is_not(None), now)


def _tenant_views(
    connection: Connection, where: ColumnElement[bool], limit: int, now: int
) -> list[TenantView]:
    statement = select(schema.tenants).where(where).order_by(_tenants.name).limit(limit)
    found = [rows.tenant_from(row) for row in connection.execute(statement)]
    names = [each.name for each in found]
    nodes, alive = _nodes_held(connection, names), _alive(connection, names)
    used = _budgets(connection, _tenants.name.in_(names), now)
    return [
        TenantView(each, nodes.get(each.name, 0), alive.get(each.name, 0), used.get(each.name))
        for each in found
    ]


def _nodes_held(connection: Connection, names: Any) -> dict[str, int]:
    return _counted(
        connection,
        select(_allocations.tenant, func.sum(NODES))
        .where(_allocations.live == 1, _allocations.tenant.in_(names))
        .group_by(_allocations.tenant),
    )


def _alive(connection: Connection, names: Any) -> dict[str, int]:
    return _counted(
        connection,
        select(_requests.tenant, func.count())
        .where(_ACTIVE, _requests.tenant.in_(names))
        .group_by(_requests.tenant),
    )


def _counted(connection: Connection, statement: Any) -> dict[str, int]:
    return {row[0]: int(row[1]) for row in connection.execute(statement)}


def _budgets(connection: Connection, where: ColumnElement[bool], now: int) -> dict[str, float]:
    """Hours count whole for allocations that began inside the window, and not at all for others."""
    budgeted = or_(_tenants.gpu_hours_budget.is_not(None), _tenants.node_hours_budget.is_not(None))
    tenants = [
        rows.tenant_from(row)
        for row in connection.execute(select(schema.tenants).where(where, budgeted))
    ]
    used = {each.name: Usage() for each in tenants}
    statement = (
        select(_allocations.tenant, _allocations.amounts, NODES, _held_until(now))
        .join(schema.tenants, _tenants.name == _allocations.tenant)
        .where(
            where,
            budgeted,
            _allocations.allocated_at >= now - bounds.BUDGET_WINDOW,
            _allocations.allocated_at <= now,
        )
        .group_by(_allocations.tenant, _allocations.amounts, NODES)
    )
    for name, amounts, nodes, milliseconds in connection.execute(statement):
        used[name].add(nodes, decode(amounts), int(milliseconds))
    days = select(_days.tenant, _days.node_time, _days.amount_time).where(
        _days.tenant.in_(list(used)),
        _days.begun >= max(0, now - bounds.BUDGET_WINDOW) // bounds.DAY,
    )
    for name, node_time, amounts in connection.execute(days):
        used[name].include(node_time, times_from(amounts))
    return {each.name: _fraction(each, used[each.name]) for each in tenants}


def _held_until(now: int) -> Any:
    """SQL: the milliseconds for which allocations were held until their end, or until now."""
    over = and_(_allocations.ended_at.is_not(None), _allocations.ended_at <= now)
    return func.sum(case((over, _allocations.ended_at), else_=now) - _allocations.allocated_at)


def _fraction(tenant: Tenant, usage: Usage) -> float:
    found = budget_fraction(tenant, usage)
    assert found is not None, tenant
    return found

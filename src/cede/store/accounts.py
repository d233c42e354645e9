"""Tenants, and what was held by whom and for how long: sums over allocations, and over the days in
which those of removed requests are summed already.

Allocations are many and their shapes are few: the database sums time by shape, and amounts are
multiplied here, as integers, so they are exact. Nothing else is read, so the accounts are the same
after a restart, and after a request was deleted. A period that begins inside a day of removed
requests has that day whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    case,
    false,
    func,
    or_,
    select,
    text,
)

from cede.model import bounds
from cede.model.lifecycle import RequestStatus
from cede.model.reason import Code
from cede.model.subject import Subject
from cede.model.tenant import Tenant
from cede.model.usage import Usage, budget_fraction
from cede.store import rows, schema, views
from cede.store.json_text import decode
from cede.store.reads import Reads, bounded
from cede.store.usage_days import times_from
from cede.store.values import Page, TenantView, UsageView

_allocations, _requests = schema.allocations.c, schema.requests.c
_policies, _tenants, _days = schema.policies.c, schema.tenants.c, schema.usage_days.c
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
# A victim that ended by itself first was not stopped for somebody.
CAME_BACK = or_(
    _requests.id.is_(None),
    _requests.attempt > _allocations.attempt,
    _requests.status == str(RequestStatus.PREEMPTED),
)


class By(StrEnum):
    """Whose usage is told apart."""

    POOL = "pool"
    POLICY = "policy"
    TENANT = "tenant"


_COLUMNS: dict[By, Any] = {
    By.POOL: _allocations.pool_id,
    By.POLICY: _allocations.policy_id,
    By.TENANT: _allocations.tenant,
}
# The same of days, and the column that counts each request once.
_DAYS: dict[By, tuple[Any, Any]] = {
    By.POOL: (_days.pool_id, _days.requests_of_pool),
    By.POLICY: (_days.policy_id, _days.requests_of_policy),
    By.TENANT: (func.nullif(_days.tenant, ""), _days.requests_of_tenant),
}


class Accounts(Reads):
    """Tenants and usage. Each call is one snapshot; `now` is an instant on the server's clock."""

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
        """By the name of every tenant that has a budget: the part of it that it has used."""
        with self._readers.begin() as connection:
            return _budgets(connection, _tenants.id.is_not(None), now)

    def usage(
        self,
        by: By,
        now: int,
        *,
        since: int | None = None,
        subjects: Sequence[Subject] | None = None,
    ) -> list[UsageView]:
        """What was held from `since` to `now`, for everybody or for the policies of `subjects`;
        the largest first.
        """
        where = [_held_within(since, now)]
        days = [] if since is None else [_days.day >= since // bounds.DAY]
        if subjects is not None:
            mine = select(_policies.id).where(or_(false(), *map(views.is_subject, subjects)))
            where.append(_allocations.policy_id.in_(mine))
            days.append(_days.policy_id.in_(mine))
        with self._readers.begin() as connection:
            found = _usage(connection, _COLUMNS[by], where, _time(since, now))
            requests = Counter(_requests_of(connection, _COLUMNS[by], where))
            preempted = Counter(_preempted(connection, _COLUMNS[by], where, now))
            for each in _removed(connection, *_DAYS[by], days):
                found.setdefault(each.id, Usage()).include(
                    each.usage.node_time, each.usage.amount_time
                )
                requests[each.id] += each.requests
                preempted[each.id] += each.preempted
        made = [
            UsageView(each, usage, requests[each], preempted[each]) for each, usage in found.items()
        ]
        return sorted(made, key=lambda each: (-each.usage.node_time, each.id or ""))

    def policy_names(self, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        """The name and the pool's id of those of these policies that are still there."""
        statement = select(_policies.id, _policies.name, _policies.pool_id)
        with self._readers.begin() as connection:
            rows_ = connection.execute(statement.where(_policies.id.in_(list(ids))))
            return {row[0]: (row[1], row[2]) for row in rows_}


def _held_within(since: int | None, now: int) -> ColumnElement[bool]:
    """Held at any time of a period. What began after `now` is not known to whoever asks."""
    begun = _allocations.allocated_at <= now
    if since is None:
        return begun
    return and_(begun, or_(_allocations.ended_at.is_(None), _allocations.ended_at > since))


def _time(since: int | None, now: int) -> Any:
    """Milliseconds that an allocation was held inside a period."""
    begin: Any = _allocations.allocated_at
    if since is not None:
        begin = case((begin < since, since), else_=begin)
    return func.sum(_end(now) - begin)


def _end(now: int) -> Any:
    over = and_(_allocations.ended_at.is_not(None), _allocations.ended_at <= now)
    return case((over, _allocations.ended_at), else_=now)


def _usage(
    connection: Connection, by: Any, where: list[ColumnElement[bool]], time: Any
) -> dict[str | None, Usage]:
    statement = (
        select(by, _allocations.amounts, NODES, time)
        .where(*where)
        .group_by(by, _allocations.amounts, NODES)
    )
    found: dict[str | None, Usage] = {}
    for each, amounts, nodes, milliseconds in connection.execute(statement):
        found.setdefault(each, Usage()).add(nodes, decode(amounts), int(milliseconds))
    return found


def _removed(
    connection: Connection, by: Any, requests: Any, where: list[ColumnElement[bool]]
) -> Iterator[UsageView]:
    """What the days say, row by row."""
    statement = select(by, _days.node_time, _days.amount_time, requests, _days.preempted)
    for id_, node_time, amounts, counted, preempted in connection.execute(statement.where(*where)):
        yield UsageView(id_, Usage(node_time, times_from(amounts)), counted, preempted)


def _requests_of(
    connection: Connection, by: Any, where: list[ColumnElement[bool]]
) -> dict[str | None, int]:
    counted = func.count(_allocations.request_id.distinct())
    statement = select(by, counted).where(*where).group_by(by)
    return {row[0]: row[1] for row in connection.execute(statement)}


def _preempted(
    connection: Connection, by: Any, where: list[ColumnElement[bool]], now: int
) -> dict[str | None, int]:
    """Attempts that were stopped for somebody."""
    statement = (
        select(by, func.count())
        .select_from(schema.allocations)
        .outerjoin(schema.requests, _requests.id == _allocations.request_id)
        .where(*where, STOPPED, _allocations.ended_at <= now, CAME_BACK)
        .group_by(by)
    )
    return {row[0]: row[1] for row in connection.execute(statement)}


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
        select(_allocations.tenant, _allocations.amounts, NODES, _time(None, now))
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


def _fraction(tenant: Tenant, usage: Usage) -> float:
    found = budget_fraction(tenant, usage)
    assert found is not None, tenant
    return found

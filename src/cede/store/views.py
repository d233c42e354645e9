"""The queries behind the reads: finds one thing by a name or a part of an id, and sums the holdings
of policies.

Amounts are JSON, so they are summed here and not in SQL: grouped by shape first, because holders
are many and shapes are few, and as integers, so they are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    case,
    func,
    select,
)

from cede.model import bounds
from cede.model.amounts import add_to
from cede.model.errors import NotFound
from cede.model.ids import SHORT_MIN, ambiguous
from cede.model.pool import Pool
from cede.model.subject import Subject
from cede.model.work import Work
from cede.store import node_rows, rows, schema
from cede.store.json_text import decode
from cede.store.statements import REQUESTS
from cede.store.values import PolicyView, RequestView

_pools, _policies, _requests = schema.pools.c, schema.policies.c, schema.requests.c
_allocations = schema.allocations.c
_REQUEST_WIDTH = len(REQUESTS.columns)
# The largest code point: every text that starts with a prefix sorts below prefix + this.
_LAST = "\U0010ffff"
# Work longer than this is replaced by a placeholder in lists.
_LONG_WORK = 8_192
_SHORT = [
    case((func.length(each) > _LONG_WORK, node_rows.work_text(Work(("…",)))), else_=each)
    if each is _requests.work
    else each
    for each in REQUESTS.columns
]


def resolve(
    connection: Connection,
    table: Table,
    kind: str,
    ref: str,
    *,
    named: bool = False,
    also: Sequence[ColumnElement[bool]] = (),
) -> str:
    """The one id that equals `ref`, has the name `ref` or the short form, or starts with it."""
    if not ref or "\0" in ref or len(ref) > bounds.NAME_LENGTH_MAX:
        raise NotFound(kind, ref[:80])
    id_ = table.c.id
    for exact in (id_, table.c.name) if named else (id_,):
        found = connection.execute(select(id_).where(exact == ref, *also)).scalar()
        if found is not None:
            return str(found)
    # Short forms first: they are what people are shown.
    for part in (schema.tail(id_), id_) if len(ref) >= SHORT_MIN else (id_,):
        starts = and_(part >= ref, part < ref + _LAST)
        statement = select(id_).where(starts, *also).order_by(id_).limit(4)
        ids = list(connection.execute(statement).scalars())
        if len(ids) > 1:
            raise ambiguous(ref, ids)
        if ids:
            return str(ids[0])
    names = select(table.c.name).limit(bounds.PAGE_MAX) if named else None
    raise NotFound(kind, ref, () if names is None else connection.execute(names).scalars())


def is_subject(subject: Subject) -> ColumnElement[bool]:
    return and_(_policies.subject_type == subject.type, _policies.subject_name == subject.name)


def with_allocation(*, short: bool = False) -> Select[Any]:
    """Requests with their latest allocations; `short` leaves out work that is too long for lists:
    a page of the longest would be half a gigabyte.
    """
    latest = and_(
        _allocations.request_id == _requests.id,
        _allocations.attempt == _requests.granted_attempt,
    )
    return (
        select(*(_SHORT if short else REQUESTS.columns), *schema.allocations.columns)
        .select_from(schema.requests)
        .outerjoin(schema.allocations, latest)
    )


def request_view(row: Any) -> RequestView:
    return _request_view(tuple(row))


def _request_view(values: tuple[Any, ...]) -> RequestView:
    allocation = values[_REQUEST_WIDTH:]
    return RequestView(
        rows.request_from(values[:_REQUEST_WIDTH]),
        rows.allocation_from(allocation) if allocation[0] is not None else None,
    )


# Equal rows of lists share one view, so that a caller can recognise a view that it has encoded.
listed_view = lru_cache(maxsize=2 * bounds.PAGE_MAX)(_request_view)


def pools(connection: Connection, where: ColumnElement[bool], limit: int = 1) -> list[Pool]:
    statement = select(schema.pools).where(where).order_by(_pools.name).limit(limit)
    return [rows.pool_from(row) for row in connection.execute(statement)]


def policy_views(
    connection: Connection, where: ColumnElement[bool], limit: int = 1
) -> list[PolicyView]:
    statement = (
        select(schema.policies, _pools.name)
        .join(schema.pools, _pools.id == _policies.pool_id)
        .where(where)
        .order_by(_policies.id)
        .limit(limit)
    )
    found = [tuple(row) for row in connection.execute(statement)]
    occupied = _occupied(connection, [row[0] for row in found])
    return [
        PolicyView(rows.policy_from(row[:-1]), row[-1], occupied.get(row[0], {})) for row in found
    ]


def _occupied(connection: Connection, ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """The holdings of each policy's live allocations, summed by shape: shapes are few."""
    statement = (
        select(_allocations.policy_id, _allocations.amounts, func.count())
        .where(_allocations.live == 1, _allocations.policy_id.in_(ids))
        .group_by(_allocations.policy_id, _allocations.amounts)
    )
    amounts: dict[str, dict[str, int]] = {}
    for id_, shape, count in connection.execute(statement):
        times = {key: amount * count for key, amount in decode(shape).items()}
        add_to(amounts.setdefault(id_, {}), times)
    return amounts

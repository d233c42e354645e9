"""Pages of ended requests, by the instant of their end, with the usage and loss of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import and_, or_, select

from cede.model import bounds
from cede.model.amounts import add_to
from cede.model.subject import Subject
from cede.model.usage import Usage
from cede.store import filters, schema, views
from cede.store.accounts import NODES
from cede.store.json_text import decode
from cede.store.reads import Reads, bounded
from cede.store.values import Page, RequestView

_requests, _allocations, _pools = schema.requests.c, schema.allocations.c, schema.pools.c


class PastView(NamedTuple):
    """An ended request. `began` is the instant of its first grant, None if it had none; `pools` is
    its usage of each pool, by key.
    """

    view: RequestView
    ended_at: int
    began: int | None
    usage: Usage
    lost: Usage
    pools: dict[str, dict[str, int]]


class Past(Reads):
    """Each call is one snapshot."""

    def past_requests(
        self,
        *,
        since: int | None = None,
        until: int | None = None,
        subjects: Sequence[Subject] | None = None,
        component: str | None = None,
        owner: str | None = None,
        pool_id: str | None = None,
        cursor: str | None = None,
        limit: int = bounds.PAGE_DEFAULT,
    ) -> Page[PastView]:
        """Requests that ended from `since` to before `until`, the last first."""
        where = [_requests.ended_at >= (since or 0)]
        if until is not None:
            where.append(_requests.ended_at < until)
        for given, column in (
            (component, _requests.subject_name),
            (owner, _requests.owner),
            (pool_id, _requests.granted_pool_id),
        ):
            if given is not None:
                where.append(column == given)
        if subjects is not None:
            where.append(filters.of_subjects(subjects))
        # Not the period: "the last hour" has another beginning on the next page.
        asked = [component, owner, pool_id, subjects]
        with self._readers.begin() as connection:
            if cursor is not None:
                at, id_ = self._cursors(connection).read("past", asked, cursor)
                same = and_(_requests.ended_at == at, _requests.id < id_)
                where.append(or_(_requests.ended_at < at, same))
            order = (_requests.ended_at.desc(), _requests.id.desc())
            keys = select(_requests.id, _requests.ended_at).where(*where).order_by(*order)
            ended = {row[0]: row[1] for row in connection.execute(keys.limit(bounded(limit) + 1))}
            found = views.with_allocation(short=True).where(_requests.id.in_(list(ended)))
            requests = {
                view.request.id: view for view in map(views.request_view, connection.execute(found))
            }
            held = _held(connection, list(ended))
            made = [
                PastView(requests[id_], at, *held.get(id_, (None, Usage(), Usage(), {})))
                for id_, at in ended.items()
            ]
            return self._page(
                connection, "past", asked, made, limit, lambda each: (each.ended_at, each[0][0].id)
            )

    def pool_costs(self) -> dict[str, dict[str, float]]:
        """The cost of a unit of each key for an hour, by the id of every pool with costs."""
        with self._readers.begin() as connection:
            found = connection.execute(select(_pools.id, _pools.settings))
            costs = {row[0]: decode(row[1]).get("cost_per_hour") for row in found}
        return {pool_id: each for pool_id, each in costs.items() if each}


def _held(connection: Any, ids: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """By request: the first grant, the usage, the lost usage, and the usage of each pool."""
    statement = select(
        _allocations.request_id, _allocations.pool_id, _allocations.amounts, NODES,
        _allocations.allocated_at, _allocations.ended_at, _allocations.lost,
    ).where(_allocations.request_id.in_(ids), _allocations.ended_at.is_not(None))  # fmt: skip
    found: dict[str, tuple[Any, ...]] = {}
    for id_, pool_id, text, nodes, begin, end, lost in connection.execute(statement):
        first, usage, wasted, pools = found.get(id_, (begin, Usage(), Usage(), {}))
        amounts, time = decode(text), end - begin
        usage.add(nodes, amounts, time)
        wasted.add(0, amounts, lost or 0)
        add_to(pools.setdefault(pool_id, {}), {key: of * time for key, of in amounts.items()})
        found[id_] = (min(first, begin), usage, wasted, pools)
    return found

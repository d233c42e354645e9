"""Usage reports: sums over allocations, and over the days in which those of removed requests are
already summed.

Allocations are many and their shapes are few: the database sums the instants of begins and ends by
shape and by the days of both, and amounts are multiplied here, as integers, so they are exact. A
period that begins or ends inside a day of removed requests includes that whole day.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    case,
    false,
    func,
    literal,
    or_,
    select,
)

from cede.model import bounds
from cede.model.amounts import add_to
from cede.model.subject import Subject
from cede.model.usage import GPU, PROJECT, Usage
from cede.model.wall import Wall
from cede.store import schema, views
from cede.store.accounts import CAME_BACK, NODES, STOPPED
from cede.store.filters import label_of
from cede.store.history import wall_of
from cede.store.json_text import decode
from cede.store.reads import Reads
from cede.store.usage_days import times_from
from cede.store.values import UsageView

_allocations, _requests = schema.allocations.c, schema.requests.c
_policies, _days = schema.policies.c, schema.usage_days.c
Where = list[ColumnElement[bool]]
# The line of a report (see `By`), and the day.
Place = tuple[str | None, int | None]


class By(StrEnum):
    """The kind of thing that each line of a report is about."""

    POOL = "pool"
    POLICY = "policy"
    TEAM = "team"
    USER = "user"
    TENANT = "tenant"
    LABEL = "label"


_TEAM = func.coalesce(_policies.subject_name, _allocations.policy_id)
_COLUMNS: dict[By, Any] = {
    By.POOL: _allocations.pool_id,
    By.POLICY: _allocations.policy_id,
    By.TEAM: _TEAM,
    By.USER: func.nullif(_requests.owner, ""),
    By.TENANT: _allocations.tenant,
}
# The same of days, and the column that counts each request once.
_DAYS: dict[By, tuple[Any, Any]] = {
    By.POOL: (_days.pool_id, _days.requests_of_pool),
    By.POLICY: (_days.policy_id, _days.requests_of_policy),
    By.TEAM: (func.coalesce(_policies.subject_name, _days.policy_id), _days.requests_of_tenant),
    By.USER: (func.nullif(_days.owner, ""), _days.requests_of_tenant),
    By.TENANT: (func.nullif(_days.tenant, ""), _days.requests_of_tenant),
    By.LABEL: (func.nullif(_days.project, ""), _days.requests_of_tenant),
}


@dataclass(slots=True)
class _Sum:
    """One line of a report while it is summed up."""

    usage: Usage = field(default_factory=Usage)
    lost: Usage = field(default_factory=Usage)
    requests: int = 0
    preempted: int = 0
    starts: int = 0
    wait_time: int = 0
    pools: dict[str, dict[str, int]] = field(default_factory=dict)

    def hold(self, pool_id: str, usage: Usage) -> None:
        if not usage.node_time and not any(usage.amount_time.values()):
            return  # it ended in the instant in which it began
        self.usage.include(usage.node_time, usage.amount_time)
        add_to(self.pools.setdefault(pool_id, {}), usage.amount_time)


class UsageReports(Reads):
    """Each call is one snapshot; instants are of the server's clock."""

    def usage(
        self,
        by: By,
        now: int,
        *,
        since: int | None = None,
        until: int | None = None,
        days: bool = False,
        subjects: Sequence[Subject] | None = None,
        label: str = PROJECT,
    ) -> list[UsageView]:
        """The usage from `since` to `until`, or to `now`, of all policies or those of `subjects`;
        the largest first. With `days` by days of UTC, in their order.
        """
        with self._readers.begin() as connection:
            period = _Period.of(wall_of(connection), since, until, now, days)
            report = _Report(connection, by, label, period, subjects)
            found = report.lines()
        made = [
            UsageView(
                id_, each.usage, each.requests, each.preempted, each.lost, each.starts,
                each.wait_time, each.pools, None if slot is None else period.first_day + slot,
            )
            for (id_, slot), each in found.items()
        ]  # fmt: skip
        return sorted(made, key=_largest_first)

    def policy_names(self, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        """The name and the pool's id of each of these policies that still exists."""
        statement = select(_policies.id, _policies.name, _policies.pool_id)
        with self._readers.begin() as connection:
            rows_ = connection.execute(statement.where(_policies.id.in_(list(ids))))
            return {row[0]: (row[1], row[2]) for row in rows_}


def _largest_first(view: UsageView) -> tuple[int, int, int, str]:
    gpu_time = view.usage.amount_time.get(GPU, 0)
    return view.day or 0, -gpu_time, -view.usage.node_time, view.id or ""


@dataclass(frozen=True, slots=True)
class _Period:
    """The instants that separate the days of a report, or bound its one period; and the days of UTC
    by which removed requests are found.
    """

    edges: tuple[int, ...]
    bounded: bool  # whether it has a beginning
    by_days: bool
    first_day: int
    last_day: int
    now: int

    @classmethod
    def of(
        cls, wall: Wall, since: int | None, until: int | None, now: int, by_days: bool
    ) -> _Period:
        begin = 0 if since is None else since
        end = now if until is None else min(until, now)
        first, last = wall.day(begin), wall.day(max(begin, end - 1))
        if not by_days:
            edges: tuple[int, ...] = (begin, max(begin, end))
            return cls(edges, since is not None, False, first, last, now)
        first = max(first, last - bounds.USAGE_DAYS_MAX + 1)
        inner = [wall.instant(day * bounds.DAY) for day in range(first + 1, last + 1)]
        begin = max(begin, wall.instant(first * bounds.DAY))
        return cls((begin, *inner, max(begin, end)), True, True, first, last, now)

    @property
    def begin(self) -> int:
        return self.edges[0]

    @property
    def end(self) -> int:
        return self.edges[-1]

    def slot(self, instant: Any) -> Any:
        """SQL: the day of the report that contains an instant."""
        inner = self.edges[1:-1]
        if not inner:
            return literal(0)
        if all(b - a == bounds.DAY for a, b in itertools.pairwise(inner)):
            # The usual case: no reboot in between, so no day is shorter on the server's clock.
            late = case((instant < inner[0], -1), else_=(instant - inner[0]) // bounds.DAY)
            return late + 1
        return case(*((instant < edge, at) for at, edge in enumerate(inner)), else_=len(inner))


class _Report:
    def __init__(
        self,
        connection: Connection,
        by: By,
        label: str,
        period: _Period,
        subjects: Sequence[Subject] | None,
    ) -> None:
        self._connection = connection
        self._by = by
        self._label = label
        self._whose = _whose(connection.dialect.name, by, label)
        self._period = period
        self._found: dict[Place, _Sum] = {}
        begun = _allocations.allocated_at
        self._begun: Where = [
            begun <= period.end if period.end == period.now else begun < period.end
        ]
        self._of_days: Where = [_days.day <= period.last_day]
        if period.bounded:
            self._of_days.append(_days.day >= period.first_day)
        if subjects is not None:
            mine = select(_policies.id).where(or_(false(), *map(views.is_subject, subjects)))
            self._begun.append(_allocations.policy_id.in_(mine))
            self._of_days.append(_days.policy_id.in_(mine))
        self._held = list(self._begun)
        if period.bounded:
            self._held.append(
                or_(_allocations.ended_at.is_(None), _allocations.ended_at > period.begin)
            )

    def lines(self) -> dict[Place, _Sum]:
        self._add_held()
        self._add_ends()
        self._add_starts()
        if not self._period.by_days:
            self._add_requests()
        self._add_removed()
        return self._found

    def _line(self, id_: str | None, slot: int) -> _Sum:
        place = (id_, slot if self._period.by_days else None)
        return self._found.setdefault(place, _Sum())

    def _select(self, *columns: Any, requests: bool = False) -> Select[Any]:
        """Select these columns of allocations, after the line that each belongs to."""
        statement = select(self._whose, *columns).select_from(schema.allocations)
        if self._by is By.TEAM:
            statement = statement.outerjoin(schema.policies, _policies.id == _allocations.policy_id)
        if requests or self._by in (By.USER, By.LABEL):
            of_request = _requests.id == _allocations.request_id
            statement = statement.outerjoin(schema.requests, of_request)
        return statement

    def _add_held(self) -> None:
        period, edges = self._period, self._period.edges
        began, ended = _allocations.allocated_at, _allocations.ended_at
        begin = case((began < period.begin, period.begin), else_=began)
        over = and_(ended.is_not(None), ended <= period.end)
        end = case((over, ended), else_=period.end)
        first, last = period.slot(begin), period.slot(end - 1)
        pool, shape = _allocations.pool_id, _allocations.amounts
        statement = self._select(
            pool, shape, NODES, first, last, func.count(), func.sum(begin), func.sum(end)
        )
        by = (self._whose, pool, shape, NODES, first, last)
        found = self._connection.execute(statement.where(*self._held).group_by(*by))
        for id_, pool_id, amounts, nodes, i, j, count, begins, ends in found:
            each = decode(amounts)
            for slot, time in _spread(edges, i, j, count, int(begins), int(ends)):
                usage = Usage()
                usage.add(nodes, each, time)
                self._line(id_, slot).hold(pool_id, usage)

    def _add_ends(self) -> None:
        """Add attempts that were stopped for others, and lost usage."""
        period = self._period
        slot = period.slot(_allocations.ended_at - 1)  # an end at midnight is of the day before
        stopped = case((and_(STOPPED, CAME_BACK), 1), else_=0)
        lost = func.coalesce(_allocations.lost, 0)
        shape = _allocations.amounts
        statement = (
            self._select(shape, slot, func.sum(stopped), func.sum(lost), requests=True)
            .where(*self._held, _allocations.ended_at <= period.end)
            .where(or_(STOPPED, _allocations.lost.is_not(None)))
            .group_by(self._whose, shape, slot)
        )
        for id_, amounts, at, count, time in self._connection.execute(statement):
            line = self._line(id_, at)
            line.preempted += int(count)
            if time:
                line.lost.add(0, decode(amounts), int(time))

    def _add_starts(self) -> None:
        """Add first attempts, on the day of their grant, and their waiting times."""
        period, began = self._period, _allocations.allocated_at
        slot = period.slot(began)
        statement = (
            self._select(slot, func.count(), func.sum(waited()), requests=True)
            .where(*self._begun, _allocations.attempt == 1, began >= period.begin)
            .group_by(self._whose, slot)
        )
        for id_, at, count, time in self._connection.execute(statement):
            line = self._line(id_, at)
            line.starts += int(count)
            line.wait_time += int(time)

    def _add_requests(self) -> None:
        counted = func.count(_allocations.request_id.distinct())
        statement = self._select(counted).where(*self._held).group_by(self._whose)
        for id_, count in self._connection.execute(statement):
            self._line(id_, 0).requests += count

    def _add_removed(self) -> None:
        """Add the days of removed requests, row by row. They have one label only."""
        whose, requests = _DAYS[self._by]
        if self._by is By.LABEL and self._label != PROJECT:
            whose = literal(None)
        statement = select(
            whose, _days.day, _days.pool_id, _days.node_time, _days.amount_time, requests,
            _days.preempted, _days.lost_time, _days.starts, _days.wait_time,
        )  # fmt: skip
        if self._by is By.TEAM:
            statement = statement.select_from(schema.usage_days).outerjoin(
                schema.policies, _policies.id == _days.policy_id
            )
        for row in self._connection.execute(statement.where(*self._of_days)):
            id_, day, pool_id, node_time, amounts, counted, preempted, lost, starts, waited_ = row
            line = self._line(id_, day - self._period.first_day)
            line.hold(pool_id, Usage(node_time, times_from(amounts)))
            line.requests += 0 if self._period.by_days else counted
            line.preempted += preempted
            line.lost.include(0, times_from(lost))
            line.starts += starts
            line.wait_time += waited_


def _whose(dialect: str, by: By, label: str) -> Any:
    """SQL: the line of a report that an allocation belongs to."""
    return func.nullif(label_of(dialect, label), "") if by is By.LABEL else _COLUMNS[by]


def waited() -> Any:
    """SQL: the waiting time of a first attempt's request; 0 if the request was deleted."""
    wait = _allocations.allocated_at - _requests.submitted_at
    return case((wait > 0, wait), else_=0)


def _spread(
    edges: Sequence[int], i: int, j: int, count: int, begins: int, ends: int
) -> Iterator[tuple[int, int]]:
    """The held time on each day of allocations that began on day `i` and ended on day `j`."""
    if i >= j:
        yield j, ends - begins
        return
    yield i, count * edges[i + 1] - begins
    for day in range(i + 1, j):
        if time := edges[day + 1] - edges[day]:  # 0 if the machine was off all day
            yield day, count * time
    yield j, ends - count * edges[j]

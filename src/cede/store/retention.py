"""Removes history that is older than it is kept: the one place that deletes history.

A run sets, in one commit with its audit entry, the bounds up to which requests, events and audit
entries are removed. Later commits remove a few rows each, until none is left before the bounds.
After a crash the next writer goes on. The usage of removed requests is added to the days in the
commit that removes them, so it is never missing and never counted twice.

Finding rows is done by readers, beside the writer; only `remove` is the writer's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    and_,
    case,
    func,
    not_,
    or_,
    select,
    tuple_,
)

from cede.model import bounds
from cede.model.bounds import DAY
from cede.model.usage import PROJECT
from cede.store import accounts, schema, statements, usage
from cede.store.digests import Digests
from cede.store.history import wall_of
from cede.store.json_text import decode
from cede.store.reads import Reads
from cede.store.usage_days import KEYS, Held, days_of
from cede.store.values import AuditNote, Keep, Removal, Run

ACTOR, ACTION, TARGET = "retention", "retention.remove", "history"

_meta, _requests, _allocations = schema.meta.c, schema.requests.c, schema.allocations.c
_events, _audit, _answers, _days = (
    schema.events.c,
    schema.audit.c,
    schema.answers.c,
    schema.usage_days.c,
)
# One statement has a tuple of seven for each of these, and SQLite takes 32,766 variables.
_DAYS_AT_ONCE = 1_000


class Retention(Reads):
    """Finds rows to remove. Each call is one snapshot."""

    def next_run(self, keep: Keep, now: int, wall: str) -> Run | None:
        """The bounds of the next run, by whole days; None if nothing has become too old.

        `wall` is the time of day, by which audit entries are dated.
        """
        with self._readers.begin() as connection:
            removed = connection.execute(select(schema.meta)).one()
            detail: dict[str, Any] = {}
            before = _begin_of_day(now, keep.requests)
            if before > removed.requests_before and (count := _ended(connection, before)):
                detail["requests"] = {"ended_before": before, "count": count}
            through = _last_event(
                connection, removed.events_through, _begin_of_day(now, keep.events)
            )
            if through is not None:
                count = _counted(connection, _events.at_index <= through)
                detail["events"] = {"through": through, "count": count}
            last = _last_entry(connection, removed.audit_through, _wall_day(wall, keep.audit))
            if last is not None:
                count = last[0] - removed.audit_through
                detail["audit"] = {"through": last[0], "hash": last[1], "count": count}
        if not detail:
            return None
        note = AuditNote(wall, ACTOR, ACTION, TARGET, detail)
        return Run(note, before if "requests" in detail else None, through, last)

    def next_removal(self, keep: Keep, now: int) -> Removal | None:
        """The next few rows to remove; None when there are none."""
        with self._readers.begin() as connection:
            removed = connection.execute(select(schema.meta)).one()
            found = _old_requests(connection, removed.requests_before)
            if not found.rows:
                found = _old_orphans(connection, removed.requests_before)
            if not found.rows:
                old = _events.at_index <= removed.events_through
                found.events = _keys(connection, _events.at_index, old, _events.at_index)
            if not found.rows:
                old = _audit.number <= removed.audit_through
                found.audit = _keys(connection, _audit.number, old, _audit.number)
            if not found.rows:
                old = _answers.at < now - keep.idempotency
                found.answers = _keys(connection, _answers.key, old, _answers.at)
        return found if found.rows else None


def remove(connection: Connection, digests: Digests, removal: Removal) -> None:
    """Delete these rows and keep their days; part of a commit."""
    statements.USAGE_DAYS.insert(connection, digests, removal.new_days)
    statements.USAGE_DAYS.update(connection, digests, removal.more_days)
    statements.ALLOCATIONS.delete(connection, digests, removal.allocations)
    statements.REQUESTS.delete(connection, digests, removal.requests)
    statements.EVENTS.delete(connection, digests, removal.events)
    statements.AUDIT.delete(connection, digests, removal.audit)
    statements.ANSWERS.delete(connection, digests, removal.answers)


def _begin_of_day(now: int, keep: int | None) -> int:
    """The beginning of the first day that is kept; 0 if all days are."""
    return 0 if keep is None else max(0, now - keep) // DAY * DAY


def _wall_day(wall: str, keep: int | None) -> str:
    """The same as a date; empty if all days are kept."""
    if keep is None:
        return ""
    return (date.fromisoformat(wall[:10]) - timedelta(milliseconds=keep)).isoformat()


def _old(before: int) -> tuple[ColumnElement[bool], ...]:
    """Conditions for requests that ended before an instant. The first of an array stays while one
    of its tasks is alive, as all tasks are named by its id. A dependant needs no row of a
    dependency: one that has ended well is not waited for.
    """
    tasks = schema.requests.alias("tasks")
    alive = select(tasks.c.id).where(tasks.c.part_of == _requests.id, tasks.c.ended_at.is_(None))
    stays = and_(_requests.part_of == _requests.id, alive.exists())
    return _requests.ended_at < before, or_(_requests.part_of.is_(None), not_(stays))


def _ended(connection: Connection, before: int) -> int:
    ended = select(func.count()).select_from(schema.requests).where(*_old(before))
    return int(connection.execute(ended).scalar_one())


def _last_event(connection: Connection, removed: int, before: int) -> int | None:
    """The last event of the days that are not kept, if it has not been removed already.

    Events are in the order of their instants, so only those to be removed are read.
    """
    if before == 0:
        return None
    rest = select(_events.at_index).where(_events.at_index > removed).order_by(_events.at_index)
    kept = connection.execute(rest.where(_events.at >= before).limit(1)).scalar()
    last = select(func.max(_events.at_index)).where(_events.at_index > removed)
    if kept is not None:
        last = last.where(_events.at_index < kept)
    found: int | None = connection.execute(last).scalar()
    return found


def _counted(connection: Connection, where: Any) -> int:
    counted = select(func.count()).select_from(schema.events).where(where)
    return int(connection.execute(counted).scalar_one())


def _last_entry(connection: Connection, removed: int, day: str) -> tuple[int, str] | None:
    """The last audit entry before a date, if it has not been removed already."""
    kept = (
        select(_audit.number)
        .where(_audit.number > removed, _audit.created >= day)
        .order_by(_audit.number)
        .limit(1)
    )
    first = connection.execute(kept).scalar()
    # The newest entry stays in any case: a run does not remove the entry about itself.
    newest = connection.execute(select(func.max(_audit.number))).scalar() or 0
    number = (newest if first is None else first) - 1
    if number <= removed:
        return None
    found = select(_audit.hash).where(_audit.number == number)
    hash_ = connection.execute(found).scalar()
    # An entry that another program deleted is not removed here, so that verification finds it.
    return None if hash_ is None else (number, hash_)


def _keys(
    connection: Connection, key: Column[Any], old: ColumnElement[bool], by: Column[Any]
) -> list[tuple[Any, ...]]:
    """The keys of the first few old rows."""
    found = select(key).where(old).order_by(by).limit(bounds.REMOVED_ROWS_MAX)
    return [tuple(row) for row in connection.execute(found)]


def _old_requests(connection: Connection, before: int) -> Removal:
    old = (
        select(_requests.id, _requests.owner, _requests.labels)
        .where(*_old(before))
        .order_by(_requests.ended_at)
        .limit(bounds.REMOVED_REQUESTS_MAX)
    )
    owners = {row[0]: (row[1], _project(row[2])) for row in connection.execute(old)}
    if not owners:
        return Removal()
    return _removal(connection, owners, _allocations.request_id.in_(list(owners)))


def _old_orphans(connection: Connection, before: int) -> Removal:
    """Allocations of deleted requests."""
    old = (
        select(_allocations.request_id)
        .outerjoin(schema.requests, _requests.id == _allocations.request_id)
        .where(_allocations.ended_at < before, _requests.id.is_(None))
        .order_by(_allocations.ended_at)
        .limit(bounds.REMOVED_REQUESTS_MAX)
    )
    ids = list(dict.fromkeys(connection.execute(old).scalars()))
    if not ids:
        return Removal()
    return _removal(connection, {}, _allocations.request_id.in_(ids))


def _project(labels: str | None) -> str:
    return decode(labels).get(PROJECT, "") if labels else ""


def _removal(connection: Connection, owners: dict[str, tuple[str, str]], where: Any) -> Removal:
    """The removal of requests with all their allocations, which are added to the days."""
    statement = (
        select(
            _allocations.request_id,
            _allocations.attempt,
            _allocations.pool_id,
            _allocations.policy_id,
            func.coalesce(_allocations.tenant, ""),
            accounts.NODES,
            _allocations.amounts,
            _allocations.allocated_at,
            _allocations.ended_at,
            and_(accounts.STOPPED, accounts.CAME_BACK),
            func.coalesce(_allocations.lost, 0),
            case((_allocations.attempt == 1, usage.waited()), else_=None),
        )
        .select_from(schema.allocations)
        .outerjoin(schema.requests, _requests.id == _allocations.request_id)
        .where(where)
    )
    held = [
        Held._make((*row[:5], *owners.get(row[0], ("", "")), *row[5:9], bool(row[9]), *row[10:]))
        for row in connection.execute(statement)
    ]
    new, more = _days_with(connection, held)
    return Removal(
        requests=[(each,) for each in owners],
        allocations=[(each.request_id, each.attempt) for each in held],
        new_days=new,
        more_days=more,
    )


def _days_with(
    connection: Connection, held: Iterable[Held]
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """The rows of new days and of stored days, with these allocations added."""
    found = days_of(held, wall_of(connection))
    keys, known = list(found), set()
    for start in range(0, len(keys), _DAYS_AT_ONCE):
        for row in connection.execute(_stored(keys[start : start + _DAYS_AT_ONCE])):
            key = tuple(row[:KEYS])
            found[key].include(tuple(row))
            known.add(key)
    new = [day.row(key) for key, day in found.items() if key not in known]
    return new, [day.row(key) for key, day in found.items() if key in known]


def _stored(keys: Sequence[Any]) -> Select[Any]:
    place = tuple_(*list(_days)[:KEYS])
    return select(schema.usage_days).where(place.in_(keys))

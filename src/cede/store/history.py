"""The history of pools: their use and demand, a row a minute and a row an hour.

A row holds from its instant until the next of the same step. Minutes are samples of the committed
state; hours are their means, made from the rows of minutes, so hours that a crash prevented are
made after the next start. The first sample after a start is a minute after the last one before it:
nothing was decided in between. The commit that adds new rows removes those that are too old.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import orjson
from sqlalchemy import Connection, func, select

from cede.model import bounds
from cede.model.bounds import HISTORY_COARSE, HISTORY_FINE
from cede.model.levels import Level, Levels, means
from cede.model.wall import Note, Wall
from cede.store import schema, statements
from cede.store.digests import Digests
from cede.store.node_rows import Row
from cede.store.reads import Reads
from cede.store.values import Noted

_history, _notes = schema.history.c, schema.clock_notes.c


class History(Reads):
    """Reads the history, and prepares the next rows. Each call is one snapshot."""

    def wall(self) -> Wall:
        """The time of day of every instant."""
        with self._readers.begin() as connection:
            return wall_of(connection)

    def levels(self, pool_id: str, since: int, until: int) -> list[Levels]:
        """The levels of a period, in the order of time, from the last row before it on: by minutes
        if these reach back so far, else by hours, and by minutes since the last hour.
        """
        with self._readers.begin() as connection:
            fine = _rows(connection, pool_id, HISTORY_FINE, since, until)
            if fine and fine[0].at <= since:
                return fine
            coarse = _rows(connection, pool_id, HISTORY_COARSE, since, until)
            if not coarse:
                return fine
            end = coarse[-1].at + HISTORY_COARSE
            rest = _rows(connection, pool_id, HISTORY_FINE, end, until) if end < until else []
            return [*coarse, *(replace(each, at=max(each.at, end)) for each in rest)]

    def next_note(
        self, sampled: Mapping[str, Levels], now: int, ahead: int, *, returning: bool = False
    ) -> Noted:
        """The changes to commit for a sample at `now`: its row, hours that are over, the time of
        day if that has changed, and keys of old rows. A `returning` server brings the sample of
        its start.
        """
        with self._readers.begin() as connection:
            noted = Noted()
            at = _place(connection, now, returning)
            if at is not None:
                noted.levels = [row_of(HISTORY_FINE, at, id_, of) for id_, of in sampled.items()]
                noted.levels += _hours(connection, sampled, at)
            noted.old_levels = _old(connection, now)
            _note_clock(connection, noted, now, ahead)
        return noted


def note(connection: Connection, digests: Digests, noted: Noted) -> None:
    """Write these changes; part of a commit."""
    statements.HISTORY.delete(connection, digests, noted.old_levels)
    statements.HISTORY.insert(connection, digests, noted.levels)
    statements.CLOCK_NOTES.delete(connection, digests, noted.old_clock)
    if noted.clock is not None:
        statements.CLOCK_NOTES.insert(connection, digests, [tuple(noted.clock)])


def wall_of(connection: Connection) -> Wall:
    return Wall(Note(*row) for row in connection.execute(select(_notes.at, _notes.ahead)))


def _place(connection: Connection, now: int, returning: bool) -> int | None:
    """The instant of the next sample: this minute, or after an absence the minute that follows the
    last sample; None if this minute has one.
    """
    this = now // HISTORY_FINE * HISTORY_FINE
    last = _newest(connection, HISTORY_FINE)
    if last is None:
        return this
    if last >= this:
        return None
    return last + HISTORY_FINE if returning else this


def _newest(connection: Connection, step: int) -> int | None:
    found: int | None = connection.execute(
        select(func.max(_history.at)).where(_history.step == step)
    ).scalar()
    return found


def _hours(connection: Connection, sampled: Mapping[str, Levels], at: int) -> list[Row]:
    """Means of the hours that are over at `at` and have no row yet, for pools that exist."""
    end = at // HISTORY_COARSE * HISTORY_COARSE
    last = _newest(connection, HISTORY_COARSE)
    first = connection.execute(
        select(func.min(_history.at)).where(_history.step == HISTORY_FINE)
    ).scalar()
    if first is None:
        return []
    begin = first // HISTORY_COARSE * HISTORY_COARSE if last is None else last + HISTORY_COARSE
    made = []
    for pool_id in sampled:
        fine = _rows(connection, pool_id, HISTORY_FINE, begin, end)
        edges = _edges(fine, begin, end)
        for hour in edges:
            (mean,) = means(fine, (hour, hour + HISTORY_COARSE))
            if mean is not None:
                made.append(row_of(HISTORY_COARSE, hour, pool_id, mean))
    return made


def _edges(fine: Sequence[Levels], begin: int, end: int) -> list[int]:
    """The hours with a sample, and the first after each: its mean holds for all that follow without
    a sample.
    """
    noted = {max(begin, each.at) // HISTORY_COARSE * HISTORY_COARSE for each in fine}
    both = noted | {hour + HISTORY_COARSE for hour in noted}
    return sorted(hour for hour in both if begin <= hour < end)


def _old(connection: Connection, now: int) -> list[Row]:
    """Keys of rows that are kept no longer, a few at a time."""
    found: list[Row] = []
    for step, keep in (
        (HISTORY_FINE, bounds.HISTORY_FINE_KEEP),
        (HISTORY_COARSE, bounds.HISTORY_COARSE_KEEP),
    ):
        old = (
            select(_history.step, _history.at, _history.pool_id)
            .where(_history.step == step, _history.at < now - keep)
            .order_by(_history.at)
            .limit(bounds.REMOVED_ROWS_MAX)
        )
        found += [tuple(row) for row in connection.execute(old)]
    return found


def _note_clock(connection: Connection, noted: Noted, now: int, ahead: int) -> None:
    notes = [Note(*row) for row in connection.execute(select(schema.clock_notes))]
    newest = max(notes, default=None)
    if newest is not None and abs(newest.ahead - ahead) <= bounds.CLOCK_DIFFERENCE:
        return
    if newest is not None and newest.at >= now:
        return
    noted.clock = Note(now, ahead)
    noted.old_clock = [(each.at,) for each in sorted(notes)[: -bounds.CLOCK_NOTES_MAX]]


def _rows(connection: Connection, pool_id: str, step: int, since: int, until: int) -> list[Levels]:
    """The rows of a period, and the last before it."""
    of_pool = select(_history.at, _history.levels, _history.requests).where(
        _history.step == step, _history.pool_id == pool_id
    )
    before = of_pool.where(_history.at <= since).order_by(_history.at.desc()).limit(1)
    within = of_pool.where(_history.at > since, _history.at < until).order_by(_history.at)
    return [*_levels(connection.execute(before)), *_levels(connection.execute(within))]


def _levels(found: Iterable[Sequence[object]]) -> list[Levels]:
    return [
        Levels(
            int(at),  # type: ignore[call-overload]
            {key: Level(*values) for key, values in orjson.loads(text).items()},  # type: ignore[arg-type]
            requests,  # type: ignore[arg-type]
        )
        for at, text, requests in found
    ]


def row_of(step: int, at: int, pool_id: str, levels: Levels) -> Row:
    text = orjson.dumps({key: tuple(level) for key, level in levels.keys.items()}).decode()
    return (step, at, pool_id, float(levels.requests), text)

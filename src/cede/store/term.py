"""The terms of writers: exactly one server writes, and the epoch in every transaction proves which
(law 6).

SQLite: a lock on a side file, so a second server waits for as long as the first lives. PostgreSQL:
a lease row on the database's clock, renewed by every commit and at least every second. Its session
also holds an advisory lock that is named after its epoch, so that a writer that died is replaced at
once, and only a frozen one is waited for. In both, safety depends on the epoch alone: a deposed
writer's transaction finds no row to update (S12).
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, cast, extract, func, literal, select, update

from cede.model import bounds
from cede.store import schema
from cede.store.errors import Damaged, Deposed, Stopped
from cede.store.lock import FileLock
from cede.store.sealed import epoch_sum

# A writer that has not renewed for this long is deposed; it renews ten times as often.
LEASE_MILLISECONDS = 10_000
RENEW_MILLISECONDS = 1_000
_POLL_SECONDS = 0.2
# The first half of our advisory locks' names; the second is the epoch.
_LOCK_CLASS = 0x6365

_meta = schema.meta


class Taken(NamedTuple):
    """A new epoch, and the milliseconds from now for which the previous writer may still believe
    that it leads.
    """

    epoch: int
    former_term: int


def former_term() -> int:
    """The longest time for which a writer without its lease can believe in it, by its own clock."""
    return LEASE_MILLISECONDS + LEASE_MILLISECONDS // bounds.LEASE_DRIFT_DIVISOR


def database_clock(dialect: str) -> Any:
    """Milliseconds on the database's clock.

    SQLite has no use for one: there the file lock decides.
    """
    if dialect == "sqlite":
        return literal(0)
    return cast(func.floor(extract("epoch", func.clock_timestamp()) * 1000), BigInteger)


def lease_end(dialect: str) -> Any:
    return literal(0) if dialect == "sqlite" else database_clock(dialect) + LEASE_MILLISECONDS


def wait_for_file(
    connection: Connection,
    lock: FileLock,
    holder: str,
    stop: Event | None,
    seen: Callable[[Connection], None],
) -> Taken:
    """Wait for the lock; `seen` is called from time to time with a connection."""

    def look() -> None:
        with connection.begin():
            seen(connection)

    if not lock.acquire(stop, look, _POLL_SECONDS):
        raise Stopped
    with connection.begin():
        epoch = _sound_epoch(connection)
        connection.execute(update(_meta).values(holder=holder, **_new_epoch(epoch + 1)))
    return Taken(epoch + 1, 0)  # the server that had the lock has ended


def wait_for_lease(
    connection: Connection, holder: str, stop: Event | None, seen: Callable[[Connection], None]
) -> Taken:
    """Wait for the lease; `seen` is called before each try with the database as it is."""
    pause = stop or Event()
    while True:
        with connection.begin():
            seen(connection)
        taken = _try_take_over(connection, holder)
        if taken is not None:
            return taken
        if pause.wait(_POLL_SECONDS):
            raise Stopped


def _try_take_over(connection: Connection, holder: str) -> Taken | None:
    """The new epoch, if the last writer's session is gone or its lease has run out.

    Neither proves that its process has ended: a session is lost with a connection, and the
    database's clock may jump. Only a writer that let go does not believe that it leads.
    """
    with connection.begin():
        clock = database_clock("postgresql")
        epoch = _sound_epoch(connection)
        until = _meta.c.lease_until
        row = connection.execute(select(until, until <= clock)).one()
        let_go, expired = row[0] == 0, bool(row[1])
        gone = _try_lock(connection, epoch)
        taken = None
        if (gone or expired) and _try_lock(connection, epoch + 1):
            statement = (
                update(_meta)
                .where(_meta.c.epoch == epoch)
                .values(holder=holder, lease_until=lease_end("postgresql"), **_new_epoch(epoch + 1))
            )
            if connection.execute(statement).rowcount == 1:
                taken = Taken(epoch + 1, 0 if let_go else former_term())
            else:
                _unlock(connection, epoch + 1)
        if gone:
            _unlock(connection, epoch)
    return taken


def _sound_epoch(connection: Connection) -> int:
    """The epoch as it was written: the next one would hide that it was changed."""
    row = connection.execute(select(_meta.c.epoch, _meta.c.epoch_sum)).one()
    if row[1] != epoch_sum(row[0]):
        raise Damaged(["table meta has a changed row"])
    return int(row[0])


def _new_epoch(epoch: int) -> dict[str, Any]:
    return {"epoch": epoch, "epoch_sum": epoch_sum(epoch)}


def raise_epoch(connection: Connection, epoch: int, to: int) -> None:
    """Write under a higher epoch from now on."""
    statement = update(_meta).where(_meta.c.epoch == epoch).values(**_new_epoch(to))
    if connection.execute(statement).rowcount != 1:
        raise Deposed(epoch, current_epoch(connection))


def renew(connection: Connection, epoch: int) -> None:
    """Keep the lease while there is nothing to commit."""
    dialect = connection.dialect.name
    with connection.begin():
        statement = (
            update(_meta).where(_meta.c.epoch == epoch).values(lease_until=lease_end(dialect))
        )
        if connection.execute(statement).rowcount != 1:
            raise Deposed(epoch, current_epoch(connection))


def let_go(connection: Connection, epoch: int) -> None:
    """Let a standby take over at once instead of after the lease."""
    with connection.begin():
        connection.execute(update(_meta).where(_meta.c.epoch == epoch).values(lease_until=0))
        connection.execute(select(func.pg_advisory_unlock_all()))


def current_epoch(connection: Connection) -> int | None:
    return connection.execute(select(_meta.c.epoch)).scalar()


def _try_lock(connection: Connection, epoch: int) -> bool:
    return bool(connection.execute(select(func.pg_try_advisory_lock(_LOCK_CLASS, epoch))).scalar())


def _unlock(connection: Connection, epoch: int) -> None:
    connection.execute(select(func.pg_advisory_unlock(_LOCK_CLASS, epoch)))

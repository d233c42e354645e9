"""Opens SQLite or PostgreSQL with the settings that our guarantees depend on.

SQLite: WAL, every commit synced, foreign keys on, writes begin IMMEDIATE. PostgreSQL: readers see
one snapshot for the length of a read (S20); a writer that is frozen inside a transaction loses it,
so that it blocks no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, InterfaceError, NoSuchModuleError, OperationalError

from cede.store.errors import DatabaseAway, WrongDatabase
from cede.store.prepared import run

# "cede", so that `file` and we can tell our databases from others'.
APPLICATION_ID = 0x63656465

_SQLITE_PRAGMAS = (
    "PRAGMA foreign_keys = ON",
    "PRAGMA synchronous = FULL",
    "PRAGMA busy_timeout = 10000",
    "PRAGMA temp_store = MEMORY",
)
# The number of reads that may run at once; others wait.
READERS = 8
# Kilobytes of pages that a connection caches. Each cache fills over days, so together they are the
# growth of a server's memory; other pages are in the system's cache.
WRITER_CACHE = 32 * 1024
READER_CACHE = 4 * 1024
# Bytes of the log of changes that stay on disk: it grows while somebody reads one snapshot for
# long, as the look for damage does, and would keep that length for ever.
LOG_KEPT = 64 * 1024 * 1024
# PostgreSQL's error classes of connections, of missing resources, and of stops and starts.
_AWAY = ("08", "53", "57P")
# A server that loses its database notices at about the end of its term, not after two hours.
_KEEPALIVE = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
# A little longer than the lease: a frozen writer's transaction ends about when its lease does.
_IDLE_IN_TRANSACTION = "10s"


def parse_url(url: str) -> URL:
    """The parsed URL of a usable database; refused with the reason in one line."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise WrongDatabase(
            "the database URL must look like sqlite:///path or postgresql://user@host/name"
        ) from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise WrongDatabase("the database URL must name a file: sqlite:///path/to/cede.db")
        return parsed.set(drivername="sqlite")
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise WrongDatabase(f"cede keeps its state in SQLite or PostgreSQL, not in {backend}")


def sqlite_path(url: URL) -> Path:
    assert url.database is not None
    return Path(url.database)


def write_engine(url: URL) -> Engine:
    """For the one writer: a single connection that is never replaced behind its back."""
    if url.get_backend_name() == "sqlite":
        return _sqlite_engine(url, begin="BEGIN IMMEDIATE", pool_size=1, setup=_make_wal)
    options = f"-c idle_in_transaction_session_timeout={_IDLE_IN_TRANSACTION}"
    return _postgresql_engine(
        url, pool_size=1, isolation_level="READ COMMITTED", connect_args={"options": options}
    )


def read_engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        return _sqlite_engine(url, begin="BEGIN", pool_size=READERS, setup=_forbid_writing)
    options = "-c default_transaction_read_only=on"
    engine = _postgresql_engine(
        url, pool_size=READERS, isolation_level="REPEATABLE READ", connect_args={"options": options}
    )
    event.listen(engine, "handle_error", _say_that_it_is_away)
    return engine


def _say_that_it_is_away(context: ExceptionContext) -> None:
    """Raise `DatabaseAway` for a database that restarts, or cannot be reached.

    A connection that is found dead before it is used is replaced without an error.
    """
    if context.is_pre_ping:
        return
    state = getattr(context.original_exception, "sqlstate", None)
    broken = isinstance(context.sqlalchemy_exception, OperationalError | InterfaceError)
    if context.is_disconnect or (broken and (state is None or state.startswith(_AWAY))):
        raise DatabaseAway from context.original_exception


def _postgresql_engine(url: URL, **options: Any) -> Engine:
    given = {name: value for name, value in _KEEPALIVE.items() if name not in url.query}
    options["connect_args"] |= given
    try:
        # A connection that died while idle is replaced before it is used for reading.
        return create_engine(url, max_overflow=0, pool_pre_ping=options["pool_size"] > 1, **options)
    except (ImportError, NoSuchModuleError):
        raise WrongDatabase(
            "PostgreSQL needs one more package: pip install 'cede[postgres]'"
        ) from None


def _sqlite_engine(url: URL, *, begin: str, pool_size: int, setup: Any) -> Engine:
    engine = create_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        # The pool gives a connection to one thread at a time, as SQLite requires.
        connect_args={"check_same_thread": False, "cached_statements": 256},
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        # The driver's own transactions leave reads outside of them; ours are explicit.
        connection.isolation_level = None
        for pragma in _SQLITE_PRAGMAS:
            connection.execute(pragma)
        setup(connection)

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        run(connection, begin)

    return engine


def _make_wal(connection: Any) -> None:
    connection.execute(f"PRAGMA cache_size = -{WRITER_CACHE}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA journal_size_limit = {LOG_KEPT}")


@contextmanager
def reading_once(connection: Connection) -> Iterator[None]:
    """A context in which pages are read once and in order: a cache that keeps them costs more time
    than it saves, and memory that is not used again.
    """
    if connection.dialect.name != "sqlite":
        yield
        return
    run(connection, f"PRAGMA cache_size = -{READER_CACHE}")
    try:
        yield
    finally:
        run(connection, f"PRAGMA cache_size = -{WRITER_CACHE}")


def _forbid_writing(connection: Any) -> None:
    connection.execute(f"PRAGMA cache_size = -{READER_CACHE}")
    connection.execute("PRAGMA query_only = ON")

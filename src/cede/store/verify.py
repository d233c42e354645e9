"""Finds damage: verifies every row against the digests of the last commit, and every index against
its table.

Living rows are verified whenever they are loaded. The rest is verified by `scrub`, in one snapshot,
while the server serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Engine, Select, select, text, true, update
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from cede.store import schema
from cede.store.digests import LAYOUTS, Digests
from cede.store.errors import Damaged
from cede.store.faults import damage, one_line
from cede.store.forms import forms, read
from cede.store.sealed import Sealed, epoch_sum

_FINDINGS_MAX = 20
# Steps of SQLite's machine, about a millisecond; its code for an interrupted statement.
_STEPS_AT_ONCE, _INTERRUPTED = 20_000, 9

_ALIVE: dict[str, Any] = {
    "requests": text(schema.ACTIVE),
    "allocations": schema.allocations.c.live == 1,
}
# The rest of these tables; all others that are loaded are loaded whole.
_ENDED: dict[str, Any] = {
    "requests": text(schema.ENDED),
    "allocations": schema.allocations.c.live.is_(None),
}
# The tables that a server reads at its start, before it takes a command.
_LOADED = (
    "pools", "nodes", "policies", "tenants", "requests", "allocations", "held_devices", "tokens",
    "pool_clocks",
)  # fmt: skip


class Alive:
    """All living rows, read once and table by table: each piece of them is counted and passed on,
    and not kept. `plainly`: as the driver gives them; otherwise in the fastest form.
    """

    def __init__(self, connection: Connection, sealed: Sealed, *, plainly: bool = False) -> None:
        self._connection = connection
        self._sealed = sealed
        self._plainly = plainly
        self._found = Digests()
        self._left = dict.fromkeys(_LOADED)

    def rows(self, name: str) -> Iterator[Sequence[Any]]:
        """The living rows of one table: requests in the order in which they were submitted."""
        del self._left[name]
        layout = LAYOUTS[name]
        # Of requests there is an index in this order; others are sorted sooner as values.
        order = schema.requests.c.at_index if name == "requests" else layout.table.columns[0]

        def narrowed(statement: Select[Any]) -> Select[Any]:
            return statement.where(_ALIVE.get(name, true())).order_by(order)

        some = forms(self._connection, layout, layout.sections[0])
        form = some[-1 if self._plainly else 0]
        pieces = read(self._connection, layout, form, self._found, narrowed)
        return chain.from_iterable(map(form.plain, pieces))

    def verify(self) -> None:
        """Refuse rows that differ from the committed ones; reads the remaining tables first."""
        for name in list(self._left):
            for _ in self.rows(name):
                pass
        if findings := list(self._sealed.digests.differing(self._found, _LOADED)):
            raise Damaged(findings)


@contextmanager
def alive(connection: Connection, sealed: Sealed, *, plainly: bool) -> Iterator[Alive]:
    """A context that reads living rows, and refuses them if they differ from the committed ones. If
    damage first fails in the use of a row, all rows are counted too, to name the damage.
    """
    try:
        found = Alive(connection, sealed, plainly=plainly)
        yield found
    except Exception:
        Alive(connection, sealed, plainly=plainly).verify()
        raise
    found.verify()


def seal(connection: Connection) -> None:
    """Accept the tables as they are, after a migration: compute their digests again."""
    row = connection.execute(select(schema.meta)).one()
    digests = Digests()
    for layout in LAYOUTS.values():
        for _ in read(connection, layout, forms(connection, layout)[-1], digests, lambda all: all):
            pass
    sealed = Sealed.unchecked(row, digests)
    sums = {"epoch_sum": epoch_sum(row.epoch)}
    connection.execute(update(schema.meta).values(**sealed.values(), **sums))


def scrub(
    engine: Engine,
    between: Callable[[], bool] = lambda: True,
    *,
    loaded: bool = False,
    rows_max: int | None = None,
) -> list[str] | None:
    """The damage of a database, in words. The scan is one snapshot, so commits may go on meanwhile.
    Rows that were `loaded`, and so verified, since the last commit are not read again.

    `between` is called about every thousand rows; when it returns False the scan ends, and the
    answer is None. It is also None if there is no damage in tables of at most `rows_max` rows and
    others were left out.
    """
    try:
        with engine.connect() as connection, connection.begin():
            row = connection.execute(select(schema.meta)).one()
            sealed = Sealed.read(row)
            findings: list[str] = []
            tables = [name for name in schema.metadata.tables if _has(sealed, name, rows_max)]
            for name in tables:
                broken = _broken_structure(connection, name, between)
                if broken is None:
                    return None
                findings += broken
            for name in filter(LAYOUTS.get, tables):
                changed = _changed_rows(connection, name, sealed, between, loaded)
                if changed is None:
                    return None
                findings += changed
            whole = len(tables) == len(schema.metadata.tables)
            return findings[:_FINDINGS_MAX] if findings or whole else None
    except Damaged as error:
        return error.findings
    except SQLAlchemyError as error:
        if (found_by_database := damage(error)) is not None:
            return [found_by_database]
        raise
    except (ValueError, TypeError) as error:
        return [f"a value cannot be read: {one_line(error)}"]


def _has(sealed: Sealed, name: str, rows_max: int | None) -> bool:
    """Whether a table has at most so many rows, as of the last commit."""
    if rows_max is None or name not in LAYOUTS:
        return True
    return sum(sealed.digests.of(each)[0] for each in LAYOUTS[name].sections) <= rows_max


def _changed_rows(
    connection: Connection, name: str, sealed: Sealed, between: Callable[[], bool], loaded: bool
) -> list[str] | None:
    """The differences of one table from its digests; None if `between` returns False first."""
    layout = LAYOUTS[name]
    where, sections, section = true(), layout.sections, None
    if loaded and name in _LOADED:
        if name not in _ENDED:
            return []
        where, sections, section = _ENDED[name], sections[1:], sections[1]
    findings: list[str] = []
    for form in forms(connection, layout, section):
        found = Digests()
        with suppress(DBAPIError) if form.packed else nullcontext():
            for _ in read(connection, layout, form, found, lambda select: select.where(where)):
                if not between():
                    return None
        findings = list(sealed.digests.differing(found, sections))
        if not findings:
            break
    return findings


def _broken_structure(
    connection: Connection, table: str, between: Callable[[], bool]
) -> list[str] | None:
    """The database's report on the pages and the indexes of a table; None if `between` returns
    False first.

    PostgreSQL checks only with the extension `amcheck`, which raises an error for damage.
    """
    if connection.dialect.name == "sqlite":
        return _broken_on_sqlite(connection, table, between)
    if connection.execute(_HAS_AMCHECK).first() is not None:
        for name in connection.execute(_INDEXES, {"table": table}).scalars():
            connection.execute(_CHECK_INDEX, {"name": name})
    return [] if between() else None


def _broken_on_sqlite(
    connection: Connection, table: str, between: Callable[[], bool]
) -> list[str] | None:
    """The same on SQLite: one statement checks the whole table, and `between` can interrupt it."""
    driver: Any = connection.connection.driver_connection
    driver.set_progress_handler(lambda: not between(), _STEPS_AT_ONCE)
    try:
        lines = connection.execute(_CHECK_TABLE, {"table": table}).scalars().all()
    except OperationalError as error:
        if getattr(error.orig, "sqlite_errorcode", None) == _INTERRUPTED:
            return None
        raise
    finally:
        driver.set_progress_handler(None, 0)
    return [f"table {table}: {line}" for line in lines if line != "ok"]


_CHECK_TABLE = text("SELECT integrity_check FROM pragma_integrity_check(:table)")
_HAS_AMCHECK = text("SELECT 1 FROM pg_extension WHERE extname = 'amcheck'")
_INDEXES = text(
    "SELECT CAST(CAST(indexrelid AS regclass) AS text) FROM pg_index "
    "WHERE indrelid = CAST(:table AS regclass)"
)
_CHECK_INDEX = text("SELECT bt_index_check(CAST(:name AS regclass), true)")

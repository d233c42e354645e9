"""Looking for damage: every row against the digests of the last commit, and every index against
its table.

What is alive is verified whenever it is loaded. The rest is verified by `scrub`, in one snapshot,
while the server serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Connection, Engine, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from cede.store import schema
from cede.store.digests import LAYOUTS, Digests, Layout
from cede.store.errors import Damaged
from cede.store.faults import damage, one_line
from cede.store.node_rows import Row
from cede.store.sealed import Sealed, epoch_sum

_ROWS_AT_ONCE = 1_000
_FINDINGS_MAX = 20

_ALIVE: dict[str, Any] = {
    "requests": text(schema.ACTIVE),
    "allocations": schema.allocations.c.live == 1,
}
_ORDER = {
    "requests": schema.requests.c.at_index,
    "allocations": schema.allocations.c.at_index,
}
# What a server that starts reads before it takes a command.
_LOADED = (
    "pools", "nodes", "policies", "tenants", "requests", "allocations", "held_devices", "tokens",
    "pool_clocks",
)  # fmt: skip


def load_alive(connection: Connection, sealed: Sealed) -> dict[str, list[Row]]:
    """The rows of everything that is alive, by table and in the order in which it came to be;
    refused unless they are what was committed.
    """
    found, loaded = Digests(), {}
    for name in _LOADED:
        layout = LAYOUTS[name]
        order = _ORDER.get(name, layout.table.columns[0])
        statement = select(*layout.columns).order_by(order)
        if name in _ALIVE:
            statement = statement.where(_ALIVE[name])
        loaded[name] = [tuple(row) for row in connection.execute(statement)]
        found.add(layout, loaded[name])
    if findings := list(sealed.digests.differing(found, _LOADED)):
        raise Damaged(findings)
    return loaded


def seal(connection: Connection) -> None:
    """Take the tables as they are, after a migration: their digests are computed anew."""
    row = connection.execute(select(schema.meta)).one()
    digests = Digests()
    for layout in LAYOUTS.values():
        for rows in _in_batches(connection, layout):
            digests.add(layout, rows)
    sealed = Sealed.unchecked(row, digests)
    sums = {"epoch_sum": epoch_sum(row.epoch)}
    connection.execute(update(schema.meta).values(**sealed.values(), **sums))


def scrub(engine: Engine, between: Callable[[], bool] = lambda: True) -> list[str] | None:
    """What is damaged, in words. All of it is one snapshot, so commits may go on meanwhile.

    `between` is called after every thousand rows; when it says False nothing is known, and the
    answer is None.
    """
    try:
        with engine.connect() as connection, connection.begin():
            row = connection.execute(select(schema.meta)).one()
            sealed = Sealed.read(row)
            findings = []
            for name in schema.metadata.tables:
                findings += _broken_structure(connection, name)
                if not between():
                    return None
            for layout in LAYOUTS.values():
                found = Digests()
                for rows in _in_batches(connection, layout):
                    found.add(layout, rows)
                    if not between():
                        return None
                findings += sealed.digests.differing(found, layout.sections)
            return findings[:_FINDINGS_MAX]
    except Damaged as error:
        return error.findings
    except SQLAlchemyError as error:
        if (found_by_database := damage(error)) is not None:
            return [found_by_database]
        raise
    except (ValueError, TypeError) as error:
        return [f"a value cannot be read: {one_line(error)}"]


def _in_batches(connection: Connection, layout: Layout) -> Iterator[list[Row]]:
    statement = select(*layout.columns).execution_options(stream_results=True)
    result = connection.execute(statement)
    while rows := result.fetchmany(_ROWS_AT_ONCE):
        yield [tuple(row) for row in rows]


def _broken_structure(connection: Connection, table: str) -> list[str]:
    """What a database says about the pages and the indexes of a table.

    PostgreSQL looks only where the extension `amcheck` is; there it raises an error.
    """
    if connection.dialect.name == "sqlite":
        lines = connection.execute(_CHECK_TABLE, {"table": table})
        return [f"table {table}: {row[0]}" for row in lines if row[0] != "ok"]
    if connection.execute(_HAS_AMCHECK).first() is not None:
        for name in connection.execute(_INDEXES, {"table": table}).scalars():
            connection.execute(_CHECK_INDEX, {"name": name})
    return []


_CHECK_TABLE = text("SELECT integrity_check FROM pragma_integrity_check(:table)")
_HAS_AMCHECK = text("SELECT 1 FROM pg_extension WHERE extname = 'amcheck'")
_INDEXES = text(
    "SELECT CAST(CAST(indexrelid AS regclass) AS text) FROM pg_index "
    "WHERE indrelid = CAST(:table AS regclass)"
)
_CHECK_INDEX = text("SELECT bt_index_check(CAST(:name AS regclass), true)")

"""Writes many rows with one statement, on either database. Rows are written and deleted here only,
so that the digests of their tables stay right.

SQLite takes a list of tuples for one prepared statement. PostgreSQL takes one statement with an
array per column (`unnest`): one round trip for any number of rows, which makes a commit there
cheap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    Connection,
    Table,
    and_,
    bindparam,
    column,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.expression import Executable

from cede.store import own_columns, schema
from cede.store.digests import LAYOUTS, Digests
from cede.store.errors import Damaged
from cede.store.node_rows import Row
from cede.store.prepared import first_of_each, run, run_many

# Rows in one statement; times the columns of any table, fewer than SQLite's 32,766 variables.
_PIECES = (256, 64, 32, 16, 8, 4, 2, 1)


class Writes:
    """Insert, update and delete rows of one table; rows are tuples in the order of `columns`."""

    def __init__(
        self,
        table: Table,
        *,
        fixed: Sequence[str] = (),
    ) -> None:
        self.layout = LAYOUTS[table.name]
        self.columns = self.layout.columns
        self.keys = [each for each in self.columns if each.primary_key]
        assert self.columns[: len(self.keys)] == self.keys, "keys come first in every table"
        self.changing = [
            each for each in self.columns if not each.primary_key and each.name not in fixed
        ]
        self._table = table
        # SQLite's parameters are positional: the changed columns, then the key.
        at = {each.name: place for place, each in enumerate(self.columns)}
        self._in_order = itemgetter(*(at[each.name] for each in (*self.changing, *self.keys)))
        self._changing_places = [at[each.name] for each in self.changing]

    # Each of these is made at its first use: most starts need few of them.

    @cached_property
    def _sqlite(self) -> dict[str, str]:
        match = and_(*(key == bindparam(f"v_{key.name}") for key in self.keys))
        changed: dict[str, Any] = {each.name: bindparam(f"v_{each.name}") for each in self.columns}
        return {
            "insert": self._compiled(insert(self._table), [each.name for each in self.columns]),
            "update": self._compiled(self._update(changed), None),
            "select": self._compiled(select(*self.columns).where(match), None),
            "delete": self._compiled(delete(self._table).where(match), None),
        }

    @cached_property
    def _inserts(self) -> dict[int, str]:
        """The insert of so many rows."""
        head, _, one = self._sqlite["insert"].partition(" VALUES ")
        return {size: f"{head} VALUES {', '.join([one] * size)}" for size in _PIECES}

    @cached_property
    def _postgresql(self) -> dict[str, Executable]:
        return {
            "insert": self._unnest_insert(),
            "update": self._unnest_update(),
            "delete": self._unnest_delete(),
            "select": self._unnest_select(),
        }

    def insert(self, connection: Connection, digests: Digests, rows: Sequence[Row]) -> None:
        if not rows:
            return
        if connection.dialect.name == "sqlite":
            for statement, some in self._in_pieces(rows):
                run(connection, statement, list(chain.from_iterable(some)))
        else:
            self._execute(connection, "insert", self.columns, rows)
        digests.add(self.layout, rows)

    def _in_pieces(self, rows: Sequence[Row]) -> Iterator[tuple[str, Sequence[Row]]]:
        """An insert of many rows, in statements of a few fixed sizes, which are prepared once. The
        driver lets other threads run at every statement: with one statement for each row they
        alternated with the writer hundreds of times in a commit.
        """
        at = 0
        for size in _PIECES:
            while len(rows) - at >= size:
                yield self._inserts[size], rows[at : at + size]
                at += size

    def update(self, connection: Connection, digests: Digests, rows: Sequence[Row]) -> None:
        if not rows:
            return
        old = self.stored(connection, [row[: len(self.keys)] for row in rows])
        if len(old) != len(rows):
            raise Damaged([f"table {self._table.name} has {len(old)} of {len(rows)} live rows"])
        if connection.dialect.name == "sqlite":
            run_many(connection, self._sqlite["update"], list(map(self._in_order, rows)))
        else:
            self._execute(connection, "update", self.columns, rows)
        digests.remove(self.layout, old.values())
        digests.add(self.layout, (self._merged(old[row[: len(self.keys)]], row) for row in rows))

    def delete(self, connection: Connection, digests: Digests, keys: Sequence[Row]) -> None:
        """Delete the rows with these keys; a missing one is skipped."""
        if not keys:
            return
        old = self.stored(connection, keys)
        if connection.dialect.name == "sqlite":
            run_many(connection, self._sqlite["delete"], list(keys))
        else:
            self._execute(connection, "delete", self.keys, keys)
        digests.remove(self.layout, old.values())

    def find(self, connection: Connection, *where: ColumnElement[bool]) -> list[Row]:
        """The keys of the rows for which these conditions hold."""
        return [tuple(row) for row in connection.execute(select(*self.keys).where(*where))]

    def stored(self, connection: Connection, keys: Sequence[Row]) -> dict[Row, Row]:
        """The stored rows, by key.

        A damaged row was added to the digest as written and is subtracted as damaged, so the digest
        of its table stays wrong, and shows the damage even after the row is overwritten.
        """
        width = len(self.keys)
        if connection.dialect.name != "sqlite":
            found = self._execute(connection, "select", self.keys, keys)
            return {tuple(row[:width]): tuple(row) for row in found}
        rows = first_of_each(connection, self._sqlite["select"], keys)
        return {key: row for key, row in zip(keys, rows, strict=True) if row is not None}

    def _merged(self, old: Row, new: Row) -> Row:
        """The row after an update: fixed columns stay as they were."""
        merged = list(old)
        for place in self._changing_places:
            merged[place] = new[place]
        return tuple(merged)

    def _execute(
        self, connection: Connection, what: str, columns: Sequence[Any], rows: Sequence[Row]
    ) -> Any:
        arrays = {
            f"v_{each.name}": list(values)
            for each, values in zip(columns, zip(*rows, strict=True), strict=True)
        }
        return connection.execute(self._postgresql[what], arrays)

    def _update(self, values: dict[str, Any]) -> Any:
        new = {each.name: values[each.name] for each in self.changing}
        matches = and_(*(key == values[key.name] for key in self.keys))
        return update(self._table).where(matches).values(new)

    def _compiled(self, statement: Any, names: list[str] | None) -> str:
        compiled = statement.compile(dialect=sqlite.dialect(), column_keys=names)
        return str(compiled)

    def _arrays(self, columns: Sequence[Any]) -> Any:
        """The parameters as a table: one array per column, row by row."""
        from sqlalchemy.dialects.postgresql import ARRAY  # SQLite's servers do without the import

        given = [bindparam(f"v_{each.name}", type_=ARRAY(each.type)) for each in columns]
        names = [column(each.name, each.type) for each in columns]
        return func.unnest(*given).table_valued(*names).render_derived(name="given")

    def _unnest_insert(self) -> Executable:
        given = self._arrays(self.columns)
        source = select(*(given.c[each.name] for each in self.columns))
        return insert(self._table).from_select([each.name for each in self.columns], source)

    def _unnest_update(self) -> Executable:
        given = self._arrays(self.columns)
        statement: Executable = self._update(
            {each.name: given.c[each.name] for each in self.columns}
        )
        return statement

    def _unnest_select(self) -> Executable:
        given = self._arrays(self.keys)
        matches: list[ColumnElement[bool]] = [key == given.c[key.name] for key in self.keys]
        return select(*self.columns).select_from(self._table.join(given, and_(*matches)))

    def _unnest_delete(self) -> Executable:
        given = self._arrays(self.keys)
        matches: list[ColumnElement[bool]] = [key == given.c[key.name] for key in self.keys]
        return delete(self._table).where(and_(*matches))


POOLS = Writes(schema.pools)
NODES = Writes(schema.nodes)
HELD_DEVICES = Writes(schema.held_devices)
POLICIES = Writes(schema.policies)
TENANTS = Writes(schema.tenants)
# These columns of a request never change; without them an update leaves their indexes alone.
_IDENTITY = (
    "at_index", "submitted_at", "subject_type", "subject_name", "created", "task", "work",
    "part_of", "array_task", "class", "tenant", *own_columns.NAMES,
)  # fmt: skip
_GRANTED = ("granted_pool_id", "granted_attempt")
# Most updates bring no new allocation: then the pair of columns that live allocations refer to is
# left out too, and the database need not search for them.
REQUESTS = Writes(schema.requests, fixed=(*_IDENTITY, *_GRANTED))
REQUESTS_GRANTED = Writes(schema.requests, fixed=_IDENTITY)
# Work may be large, and changes once at most: when a client hands it over to agents.
REQUESTS_HANDED_OVER = Writes(
    schema.requests, fixed=[each.name for each in schema.requests.columns if each.name != "work"]
)
# The same for an allocation that goes on; one that ends also drops its reference to the request.
_GRANT = ("pool_id", "policy_id", "at_index", "allocated_at", "tenant", "nodes")
ALLOCATIONS = Writes(schema.allocations, fixed=(*_GRANT, "live"))
ALLOCATIONS_ENDED = Writes(schema.allocations, fixed=_GRANT)
# An allocation of a deleted request keeps the columns that the accounts need.
_TOLD = ("reason", "members", "parting")
ALLOCATIONS_FORGOTTEN = Writes(
    schema.allocations,
    fixed=[each.name for each in schema.allocations.columns if each.name not in _TOLD],
)
EVENTS = Writes(schema.events)
TOKENS = Writes(schema.tokens)
ANSWERS = Writes(schema.answers)
USAGE_DAYS = Writes(schema.usage_days)
HISTORY = Writes(schema.history)
CLOCK_NOTES = Writes(schema.clock_notes)
POOL_CLOCKS = Writes(schema.pool_clocks)
AUDIT = Writes(schema.audit)

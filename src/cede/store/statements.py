"""Writing many rows with one statement, whichever the database.

SQLite takes a list of tuples for one prepared statement. PostgreSQL takes one statement with an
array per column (`unnest`): one round trip whatever the number of rows, which is what makes a
commit there cheap.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.expression import Executable

from cede.store import own_columns, schema
from cede.store.node_rows import Row


class Writes:
    """Insert, update and delete rows of one table; rows are tuples in the order of `columns`."""

    def __init__(
        self,
        table: Table,
        *,
        fixed: Sequence[str] = (),
        skip: Sequence[str] = (),
    ) -> None:
        self.columns = [each for each in table.columns if each.name not in skip]
        self.keys = [each for each in self.columns if each.primary_key]
        assert self.columns[: len(self.keys)] == self.keys, "keys come first in every table"
        self.changing = [
            each for each in self.columns if not each.primary_key and each.name not in fixed
        ]
        self._table = table
        # SQLite's parameters are positional: what is set, then the key.
        places = [self.columns.index(each) for each in (*self.changing, *self.keys)]
        self._in_order = itemgetter(*places)
        self._sqlite = {
            "insert": self._compiled(insert(table), [each.name for each in self.columns]),
            "update": self._compiled(
                self._update({each.name: bindparam(f"v_{each.name}") for each in self.columns}),
                None,
            ),
            "delete": self._compiled(
                delete(table).where(
                    and_(*(key == bindparam(f"v_{key.name}") for key in self.keys))
                ),
                None,
            ),
        }
        self._postgresql: dict[str, Executable] = {
            "insert": self._unnest_insert(),
            "update": self._unnest_update(),
            "delete": self._unnest_delete(),
        }

    def insert(self, connection: Connection, rows: Sequence[Row]) -> None:
        if not rows:
            return
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql(self._sqlite["insert"], list(rows))
        else:
            self._execute(connection, "insert", self.columns, rows)

    def update(self, connection: Connection, rows: Sequence[Row]) -> None:
        if not rows:
            return
        if connection.dialect.name == "sqlite":
            ordered = list(map(self._in_order, rows))
            result = connection.exec_driver_sql(self._sqlite["update"], ordered)
        else:
            result = self._execute(connection, "update", self.columns, rows)
        assert result.rowcount == len(rows), (self._table.name, result.rowcount, len(rows))

    def delete(self, connection: Connection, keys: Sequence[Row]) -> None:
        if not keys:
            return
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql(self._sqlite["delete"], list(keys))
        else:
            self._execute(connection, "delete", self.keys, keys)

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

    def _unnest_delete(self) -> Executable:
        given = self._arrays(self.keys)
        matches: list[ColumnElement[bool]] = [key == given.c[key.name] for key in self.keys]
        return delete(self._table).where(and_(*matches))


POOLS = Writes(schema.pools)
NODES = Writes(schema.nodes)
HELD_DEVICES = Writes(schema.held_devices)
POLICIES = Writes(schema.policies)
TENANTS = Writes(schema.tenants)
# What a request is known by and about never changes; leaving it out leaves its indexes alone.
_IDENTITY = (
    "at_index", "submitted_at", "subject_type", "subject_name", "created", "task", "work",
    "part_of", "class", "tenant", *own_columns.NAMES,
)  # fmt: skip
_GRANTED = ("granted_pool_id", "granted_attempt")
# Most updates bring no new allocation: then the pair that live allocations refer to is left alone
# too, and the database need not look for them.
REQUESTS = Writes(schema.requests, fixed=(*_IDENTITY, *_GRANTED), skip=("one",))
REQUESTS_GRANTED = Writes(schema.requests, fixed=_IDENTITY, skip=("one",))
# The same for an allocation that goes on, against one that has ended and lets go of its request.
_GRANT = ("pool_id", "policy_id", "at_index", "allocated_at", "tenant", "nodes")
ALLOCATIONS = Writes(schema.allocations, fixed=(*_GRANT, "live"))
ALLOCATIONS_ENDED = Writes(schema.allocations, fixed=_GRANT)
EVENTS = Writes(schema.events)
TOKENS = Writes(schema.tokens)
ANSWERS = Writes(schema.answers)
USAGE_DAYS = Writes(schema.usage_days)
AUDIT = Writes(schema.audit)

"""Statements that every commit runs, made once: as text for SQLite's driver, which keeps them
prepared, and as SQLAlchemy's for PostgreSQL.

SQLAlchemy takes several times as long to run a small statement as SQLite does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, Update
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.crud import REQUIRED


def run(connection: Connection, text: str, parameters: Sequence[Any] = ()) -> Any:
    """Run a statement on SQLite, past SQLAlchemy; errors are the ones that it would raise."""
    try:
        return connection.connection.cursor().execute(text, parameters)
    except sqlite3.Error as error:
        raise DBAPIError.instance(text, None, error, sqlite3.Error) from error


def run_many(connection: Connection, text: str, parameters: Sequence[Sequence[Any]]) -> None:
    """Run one statement with each of many lists of parameters."""
    try:
        connection.connection.cursor().executemany(text, parameters)
    except sqlite3.Error as error:
        raise DBAPIError.instance(text, None, error, sqlite3.Error) from error


def first_of_each(
    connection: Connection, text: str, parameters: Sequence[Sequence[Any]]
) -> list[tuple[Any, ...] | None]:
    """The first row, if any, that a query finds with each of many lists of parameters."""
    try:
        cursor = connection.connection.cursor()
        return [cursor.execute(text, each).fetchone() for each in parameters]
    except sqlite3.Error as error:
        raise DBAPIError.instance(text, None, error, sqlite3.Error) from error


def in_pieces(
    connection: Connection, statement: Select[Any], many: int
) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of a query, at most `many` at once, as they arrive."""
    if connection.dialect.name != "sqlite":
        result = connection.execute(statement, execution_options={"stream_results": True})
        yield from (list(map(tuple, rows)) for rows in result.partitions(many))
        return
    text = statement.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True})
    cursor = run(connection, str(text))
    try:
        while rows := cursor.fetchmany(many):
            yield rows
    except sqlite3.Error as error:
        raise DBAPIError.instance(None, None, error, sqlite3.Error) from error


class Prepared:
    """An update with named parameters."""

    def __init__(
        self, on_sqlite: Update, on_postgresql: Update, values: Sequence[str] = ()
    ) -> None:
        """`values` are the columns that it sets to parameters of their names."""
        compiled = on_sqlite.compile(dialect=sqlite.dialect(), column_keys=list(values) or None)
        order = compiled.positiontup
        assert order is not None
        self._text, self._order = str(compiled), tuple(order)
        # Parameters with values in the statement itself.
        self._given = {
            name: value
            for name, value in compiled.params.items()
            if value is not None and value is not REQUIRED
        }
        self._statement = on_postgresql

    def execute(self, connection: Connection, values: Mapping[str, Any]) -> int:
        """Run the update; return the number of its rows."""
        if connection.dialect.name != "sqlite":
            return connection.execute(self._statement, values).rowcount
        known = {**self._given, **values}
        found: int = run(connection, self._text, [known[name] for name in self._order]).rowcount
        return found

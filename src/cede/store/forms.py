"""The two forms in which rows are read to be counted: as a tuple of the driver, or as the JSON text
that their digest is of, which SQLite writes itself.

The driver makes a value of every column, and the digest makes the text of them again. Reading the
text, counting it and making values of it takes two thirds of the time. Where SQLite should ever
write a text in another way, the digests differ, and who reads must do so again in the plain form:
then no value is used that was not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, select

from cede.store.digests import Digests, Layout
from cede.store.json_text import decode
from cede.store.prepared import in_pieces

Rows = Sequence[Sequence[Any]]
_ROWS_AT_ONCE = 1_000


class Form(NamedTuple):
    """The columns to ask for, and how rows with these are counted and made into plain rows."""

    columns: Sequence[ColumnElement[Any]]
    add: Callable[[Digests, Layout, Rows], None]
    plain: Callable[[Rows], Rows]
    packed: bool = False


def forms(connection: Connection, layout: Layout, section: str | None = None) -> list[Form]:
    """The forms in which a table, or a section of it, can be read here: the fastest first, the
    plain one last.
    """
    plain = Form(layout.columns, Digests.add, lambda rows: rows)
    packed = layout.packed if connection.dialect.name == "sqlite" else None
    if packed is None:
        return [plain]
    columns = [packed, *([] if section else layout.told)]
    return [Form(columns, partial(Digests.add_packed, section=section), _unpacked, True), plain]


def read(
    connection: Connection,
    layout: Layout,
    form: Form,
    found: Digests,
    narrowed: Callable[[Select[Any]], Select[Any]],
) -> Iterator[Rows]:
    """Pieces of a table, each added to `found` before it is passed on."""
    for rows in in_pieces(connection, narrowed(select(*form.columns)), _ROWS_AT_ONCE):
        form.add(found, layout, rows)
        yield rows


def _unpacked(rows: Rows) -> Rows:
    return [decode(row[0]) for row in rows]

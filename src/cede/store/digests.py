"""Digests of tables: they show every row that was changed, lost, doubled or restored.

The digest of a set of rows is their number and the sum of their hashes, which depends on no order:
a commit adds the rows that it writes and subtracts the rows that it replaces. All digests stand in
the one row of `meta`, which every commit updates and which carries a checksum of its own. One scan
of a table is then enough to verify all of it. Digests protect against faults of disks and file
systems; against people, the audit chain does.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from struct import unpack
from typing import Any

import orjson
from sqlalchemy import Boolean, ColumnElement, Double, LargeBinary, Table, cast, func

from cede.model.lifecycle import TERMINAL
from cede.store import schema

_BYTES = 16
_MODULUS = 1 << (8 * _BYTES)
_ENDED = frozenset(status.value for status in TERMINAL)
_hashed: Callable[[bytes], Any] = partial(blake2b, digest_size=_BYTES)


def hash_of(values: Sequence[Any]) -> int:
    """The hash of plain values, the same on every machine and database."""
    return int.from_bytes(_hashed(_text_of(values)).digest(), "big")


def _text_of(values: Sequence[Any]) -> bytes:
    # A value of a type that no column has is damage, and hashes unlike any written value.
    return orjson.dumps(values, repr)


def _sum_of(texts: Iterable[bytes]) -> int:
    """The sum of the hashes of these texts: of their first halves, and of their second halves."""
    hashes = b"".join([_hashed(text).digest() for text in texts])
    halves: tuple[int, ...] = unpack(f">{2 * len(hashes) // _BYTES}Q", hashes)
    return (sum(halves[::2]) << 64) + sum(halves[1::2])


class Layout:
    """The rows of one table: their columns, their hashes, and the section that each belongs to.

    Living rows have a section of their own, which a start reads in any case, and so verifies at any
    length of the history.
    """

    sections: tuple[str, ...]

    def __init__(self, table: Table, ended: tuple[str, Container[Any]] | None = None) -> None:
        """`ended` is a column, and its values in ended rows."""
        self.table = table
        # A column that always has its default is checked by the database and unused elsewhere.
        self.columns = [each for each in table.columns if each.name != "one"]
        name = "".join(table.name)  # plain text: SQLAlchemy's own type is no key of a dictionary
        self.sections = (name,) if ended is None else (name, f"{name}_ended")
        self._ended = None if ended is None else (_place(table, ended[0]), ended[1])
        # Drivers disagree about these: 1 or True, 1 or 1.0.
        self._booleans = self._places(Boolean)
        self._fractions = self._places(Double)

    @property
    def packed(self) -> ColumnElement[Any] | None:
        """A column by which SQLite itself returns the text that the hash of a row is of. None for
        tables with fractions, which SQLite writes with fewer digits.
        """
        return None if self._fractions else cast(func.json_array(*self.columns), LargeBinary)

    @property
    def told(self) -> list[ColumnElement[Any]]:
        """The column that tells the section of a row, if there are two."""
        return [] if self._ended is None else [self.columns[self._ended[0]]]

    def _text_of(self, row: Sequence[Any]) -> bytes:
        plain = tuple(row)
        for place in self._booleans:
            if isinstance(plain[place], bool):
                plain = (*plain[:place], int(plain[place]), *plain[place + 1 :])
        for place in self._fractions:
            if isinstance(plain[place], int | float):
                one_zero = float(plain[place]) + 0.0  # SQLite keeps no sign of it
                plain = (*plain[:place], one_zero, *plain[place + 1 :])
        return _text_of(plain)

    def texts(self, rows: Iterable[Sequence[Any]]) -> dict[str, list[bytes]]:
        """The text of each row, by section."""
        if self._ended is None:
            return {self.sections[0]: list(map(self._text_of, rows))}
        place = self._ended[0]
        return self._divided((self._text_of(row), row[place]) for row in rows)

    def packed_texts(
        self, rows: Iterable[Sequence[Any]], section: str | None
    ) -> dict[str, list[bytes]]:
        """The same of packed rows of one section, or with the column that tells it."""
        if section is None and self._ended is not None:
            return self._divided(rows)
        return {section or self.sections[0]: [text for (text,) in rows]}

    def _divided(self, rows: Iterable[Sequence[Any]]) -> dict[str, list[bytes]]:
        """Texts by section; behind each stands what tells it."""
        assert self._ended is not None
        values = self._ended[1]
        found: tuple[list[bytes], list[bytes]] = [], []
        alive, ended = found
        for text, told in rows:
            (ended if told in values else alive).append(text)
        return dict(zip(self.sections, found, strict=True))

    def _places(self, kind: type) -> list[int]:
        return [at for at, each in enumerate(self.columns) if isinstance(each.type, kind)]


def _place(table: Table, column: str) -> int:
    return list(table.columns.keys()).index(column)


LAYOUTS = {
    layout.table.name: layout
    for layout in (
        Layout(schema.pools),
        Layout(schema.nodes),
        Layout(schema.policies),
        Layout(schema.tenants),
        Layout(schema.requests, ended=("status", _ENDED)),
        Layout(schema.allocations, ended=("live", (None,))),
        Layout(schema.held_devices),
        Layout(schema.tokens),
        Layout(schema.events),
        Layout(schema.answers),
        Layout(schema.usage_days),
        Layout(schema.history),
        Layout(schema.clock_notes),
        Layout(schema.pool_clocks),
        Layout(schema.audit),
    )
}


class Digests:
    """The number of rows and the sum of their hashes, by section."""

    def __init__(self, known: dict[str, tuple[int, int]] | None = None) -> None:
        self._known = {} if known is None else dict(known)

    def add(self, layout: Layout, rows: Iterable[Sequence[Any]]) -> None:
        self._count(layout.texts(rows), 1)

    def add_packed(
        self, layout: Layout, rows: Iterable[Sequence[Any]], section: str | None = None
    ) -> None:
        self._count(layout.packed_texts(rows, section), 1)

    def remove(self, layout: Layout, rows: Iterable[Sequence[Any]]) -> None:
        self._count(layout.texts(rows), -1)

    def of(self, section: str) -> tuple[int, int]:
        return self._known.get(section, (0, 0))

    def copy(self) -> Digests:
        return Digests(self._known)

    def differing(self, found: Digests, sections: Iterable[str]) -> Iterator[str]:
        """The difference of each of these sections, in words."""
        for section in sections:
            (rows, sum_), (rows_found, sum_found) = self.of(section), found.of(section)
            table = section.removesuffix("_ended")
            if rows != rows_found:
                yield f"table {table} has {rows_found} of {rows} {_kind(section)}rows"
            elif sum_ != sum_found:
                yield f"table {table} has a changed row among its {rows} {_kind(section)}rows"

    def to_text(self) -> str:
        return orjson.dumps(
            {section: [rows, f"{sum_:x}"] for section, (rows, sum_) in self._known.items() if rows}
        ).decode()

    @classmethod
    def from_text(cls, text: str) -> Digests:
        found = orjson.loads(text)
        return cls({section: (rows, int(sum_, 16)) for section, (rows, sum_) in found.items()})

    def _count(self, texts: dict[str, list[bytes]], sign: int) -> None:
        for section, some in texts.items():
            count, sum_ = self.of(section)
            total = (sum_ + sign * _sum_of(some)) % _MODULUS
            self._known[section] = count + sign * len(some), total


def _kind(section: str) -> str:
    return "ended " if section.endswith("_ended") else ""

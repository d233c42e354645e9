"""The declared fields of a request as columns: the database's form of each kind.

The default is stored as NULL, which costs one byte, so a column that a migration adds needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Boolean, Column, Double, Integer
from sqlalchemy import Text as TextType
from sqlalchemy.types import TypeEngine

from cede.model.fields import (
    Count,
    Declared,
    Duration,
    Flag,
    Kind,
    Labels,
    Name,
    Numbers,
    Quantities,
    Ratio,
    References,
    Text,
    Word,
    fields_of,
)
from cede.model.request import Request
from cede.store.json_text import decode, encode
from cede.store.unread import UnreadMap

NUMBER = BigInteger().with_variant(Integer(), "sqlite")
# "C" compares code points, as SQLite does; a locale's order would make prefix ranges wrong.
NAME = TextType().with_variant(TextType(collation="C"), "postgresql")


def _same(value: Any) -> Any:
    return value


class _Stored(NamedTuple):
    column: TypeEngine[Any]
    write: Callable[[Any], Any] = _same
    reader: Callable[[Kind], Callable[[Any], Any]] = lambda _: _same


def _map_text(value: Any) -> str:
    return value.text if isinstance(value, UnreadMap) else encode(value)


# Labels decide nothing.
_UNREAD_MAP = _Stored(TextType(), _map_text, lambda _: UnreadMap)
_STORED: dict[type[Kind], _Stored] = {
    Flag: _Stored(Boolean(), reader=lambda _: bool),
    Text: _Stored(TextType()),
    Name: _Stored(NAME),
    Word: _Stored(TextType(), str, lambda kind: lambda value: kind.parse(value, "")),
    Duration: _Stored(NUMBER),
    Count: _Stored(NUMBER),
    Ratio: _Stored(Double(), float),
    Quantities: _Stored(TextType(), encode, lambda _: decode),
    Labels: _UNREAD_MAP,
    Numbers: _Stored(TextType()),
    References: _Stored(TextType(), encode, lambda _: lambda text: tuple(decode(text))),
}
_OWN: tuple[tuple[Declared, _Stored], ...] = tuple(
    (each, _STORED[type(each.kind)]) for each in fields_of(Request)
)
NAMES = tuple(each.attribute for each, _ in _OWN)
_USUAL = [each.default for each, _ in _OWN]
_READERS = [stored.reader(each.kind) for each, stored in _OWN]


def columns() -> Iterator[Column[Any]]:
    for each, stored in _OWN:
        yield Column(each.attribute, stored.column)


def values_of(request: Request) -> Iterator[Any]:
    for each, stored in _OWN:
        held = getattr(request, each.attribute)
        yield None if held == each.default else stored.write(held)


def fields_from(values: Sequence[Any]) -> list[Any]:
    """These fields of a request, in their order; absent ones have their defaults."""
    found = _USUAL.copy()
    for at, value in enumerate(values):
        if value is not None:
            found[at] = _READERS[at](value)
    return found

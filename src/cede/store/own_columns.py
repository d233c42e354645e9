"""The declared fields of a request as columns: what the database makes of each kind.

The usual value is NULL, which costs one byte, so a column that a migration adds needs no default.
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

NUMBER = BigInteger().with_variant(Integer(), "sqlite")
# "C" compares code points, as SQLite does; a locale's order would make prefix ranges wrong.
NAME = TextType().with_variant(TextType(collation="C"), "postgresql")


def _same(value: Any) -> Any:
    return value


class _Stored(NamedTuple):
    column: TypeEngine[Any]
    write: Callable[[Any], Any] = _same
    read: Callable[[Kind, Any], Any] = lambda _, value: value


_MAP = _Stored(TextType(), encode, lambda _, text: decode(text))
_STORED: dict[type[Kind], _Stored] = {
    Flag: _Stored(Boolean(), read=lambda _, value: bool(value)),
    Text: _Stored(TextType()),
    Name: _Stored(NAME),
    Word: _Stored(TextType(), str, lambda kind, value: kind.parse(value, "")),
    Duration: _Stored(NUMBER),
    Count: _Stored(NUMBER),
    Ratio: _Stored(Double(), float),
    Quantities: _MAP,
    Labels: _MAP,
    Numbers: _Stored(TextType()),
    References: _Stored(TextType(), encode, lambda _, text: tuple(decode(text))),
}
_OWN: tuple[tuple[Declared, _Stored], ...] = tuple(
    (each, _STORED[type(each.kind)]) for each in fields_of(Request)
)
NAMES = tuple(each.attribute for each, _ in _OWN)
_READ = tuple((each.attribute, each.kind, stored.read) for each, stored in _OWN)


def columns() -> Iterator[Column[Any]]:
    for each, stored in _OWN:
        yield Column(each.attribute, stored.column)


def values_of(request: Request) -> Iterator[Any]:
    for each, stored in _OWN:
        held = getattr(request, each.attribute)
        yield None if held == each.default else stored.write(held)


def fields_from(values: Sequence[Any]) -> dict[str, Any]:
    """These fields of a request; what is absent is usual."""
    return {
        name: read(kind, value)
        for (name, kind, read), value in zip(_READ, values, strict=True)
        if value is not None
    }

"""A dataclass of the model as an array of its fields' values, in their order, without their names.

The order is the format: a new field comes last and has a default, because arrays that were written
before it are shorter. `tests/store/test_arrays.py` holds one array of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from cede.model.copying import maker

T = TypeVar("T")
Convert = Callable[[Any], Any]


def array_of(value: Any, optional: int = 0) -> list[Any]:
    """The values of a dataclass for JSON; of the last `optional` ones, trailing defaults are left
    out.
    """
    kind = value.__class__
    found = list(_values_of(kind)(value))
    if optional:
        usual = _defaults_of(kind)
        least = len(found) - optional
        while len(found) > least and found[-1] == usual[len(found) - 1]:
            found.pop()
    return found


def from_array(kind: type[T], array: list[Any]) -> T:
    """The value of an array; fields beyond its end have their defaults. The array is converted in
    place.
    """
    of: Any = kind
    make, converts = _made_of(of)
    for at, convert in converts:
        if at < len(array):
            array[at] = convert(array[at])
    value: T = make(*array)
    return value


@cache
def _values_of(kind: type) -> Convert:
    return attrgetter(*(each.name for each in fields(kind)))


@cache
def _defaults_of(kind: type) -> tuple[Any, ...]:
    return tuple(
        each.default if each.default_factory is MISSING else each.default_factory()
        for each in fields(kind)
    )


@cache
def _made_of(kind: type) -> tuple[Callable[..., Any], tuple[tuple[int, Convert], ...]]:
    """The maker of values of a dataclass; and the converters of those fields that JSON returns as
    another type, with their places.
    """
    hints = get_type_hints(kind)
    converts = [_convert(hints[each.name]) for each in fields(kind)]
    return maker(kind), tuple((at, each) for at, each in enumerate(converts) if each is not None)


def _convert(hint: Any) -> Convert | None:
    """The converter from JSON's value to this type; None if they are the same."""
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        words = {each.value: each for each in hint}
        return lambda value: words.get(value) or hint(value)
    if origin is UnionType and NoneType in inner:
        some = _convert(next(each for each in inner if each is not NoneType))
        return some and (lambda value: None if value is None else some(value))
    if origin is tuple:
        each = _convert(inner[0])  # all of one tuple are alike in this
        return tuple if each is None else (lambda values: tuple(map(each, values)))
    if origin is Mapping and (of := _convert(inner[1])) is not None:
        return lambda values: {key: of(value) for key, value in values.items()}
    return None

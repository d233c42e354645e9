"""Make and copy frozen dataclasses of the hot path in a fraction of the standard library's time.

A frozen `__init__` writes every field by a call, and `dataclasses.replace` also looks each field up
by name. Here a value is made as an instance of a twin class, which has the same fields in the same
slots and is not frozen, and at the end of its `__init__` becomes an instance of its own class.
Values that differ in some fields only are made by `stamp`, which writes the others at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["maker", "replace", "stamp"]

T = TypeVar("T")

if TYPE_CHECKING:
    # The same function for type checkers, which know its rules.
    from dataclasses import replace
else:

    def replace(value: Any, /, **changes: Any) -> Any:
        """A copy of a dataclass value with these fields changed."""
        cls = value.__class__
        layout = _layout(cls)
        if layout is None:
            return dataclasses.replace(value, **changes)
        twin, read, places = layout
        held = list(read(value))
        for name, new in changes.items():
            if name not in places:
                raise TypeError(f"{cls.__name__} has no field {name!r}")
            held[places[name]] = new
        return twin(*held)


def maker(cls: type[T]) -> Callable[..., T]:
    """A constructor for a dataclass, called as the class itself."""
    kind: Any = cls
    layout = _layout(kind)
    return cls if layout is None else layout[0]


# Reads the common fields of a value.
Common = Callable[[T], tuple[Any, ...]]


def stamp(cls: type[T], own: Sequence[str]) -> tuple[Common[T], Callable[..., T]]:
    """For many values of a dataclass that differ in the fields `own` only: a reader of all other
    fields of a value, and a constructor of values from these and from the own ones in their order.
    """
    kind: Any = cls
    layout = _layout(kind)
    assert layout is not None, cls
    common = [name for name in layout[2] if name not in own]
    # As the standard library makes an `__init__`: a loop over names takes three times as long.
    lines = (
        "def stamped(common, own):",
        "    value = new(twin)",
        f"    {', '.join(f'value.{name}' for name in common)} = common",
        f"    {', '.join(f'value.{name}' for name in own)} = own",
        "    value.__class__ = cls",
        "    return value",
    )
    made: dict[str, Any] = {"new": object.__new__, "twin": layout[0], "cls": cls}
    exec("\n".join(lines), made)
    return attrgetter(*common), made["stamped"]


@cache
def _layout(
    cls: Any,
) -> tuple[Callable[..., Any], Callable[[Any], tuple[Any, ...]], dict[str, int]] | None:
    """The twin of a class, a reader of all fields of a value, and the place of each field; None for
    a class that does more than keep its fields in slots.
    """
    fields = dataclasses.fields(cls)
    names = [each.name for each in fields]
    slots = [name for each in cls.__mro__ for name in vars(each).get("__slots__", ())]
    plain = all(each.init and not each.kw_only for each in fields)
    if not plain or sorted(slots) != sorted(names) or hasattr(cls, "__post_init__"):
        return None
    if len(names) < 2:
        return None

    def become(value: Any) -> None:
        value.__class__ = cls

    alike = dataclasses.make_dataclass(
        cls.__name__, [_alike(each) for each in fields], namespace={"__post_init__": become}
    )
    twin = type(
        cls.__name__,
        cls.__bases__,
        {
            "__slots__": vars(cls)["__slots__"],
            "__init__": vars(alike)["__init__"],
            "__post_init__": become,
            "__setattr__": object.__setattr__,  # also where a class above is frozen
        },
    )
    return twin, attrgetter(*names), {name: at for at, name in enumerate(names)}


def _alike(field: dataclasses.Field[Any]) -> tuple[str, Any, Any]:
    usual: Any = dataclasses.field()
    if field.default is not dataclasses.MISSING:
        usual = dataclasses.field(default=field.default)
    elif field.default_factory is not dataclasses.MISSING:
        usual = dataclasses.field(default_factory=field.default_factory)
    return field.name, Any, usual

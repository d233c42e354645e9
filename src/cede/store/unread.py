"""Work and maps as the text of their rows, parsed when they are used.

Decisions read neither the command nor the labels of a request, so only the text of waiters' is
kept: that takes a third of the memory, and no time at a start. A reader finds plain `Work`, or a
mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from cede.model.work import Work
from cede.store.arrays import from_array
from cede.store.json_text import decode

_SLOTS: dict[str, Any] = {each.name: vars(Work)[each.name] for each in fields(Work)}
# The text stands in the place of the first field.
_TEXT = _SLOTS["argv"]


class UnreadWork(Work):
    """Becomes `Work` when one of its fields is read first."""

    __slots__ = ()

    def __init__(self, text: str) -> None:
        _TEXT.__set__(self, text)

    def __eq__(self, other: object) -> bool:
        return _read(self) == other

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return Work, (self.argv, self.env, self.directory, self.user)  # a copy is plain `Work`


class UnreadMap(Mapping[str, Any]):
    """A map that nobody changes, parsed again by each who looks: few do."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __getitem__(self, key: str) -> Any:
        return decode(self.text)[key]

    def __iter__(self) -> Iterator[str]:
        return iter(decode(self.text))

    def __len__(self) -> int:
        return len(decode(self.text))

    def __eq__(self, other: object) -> bool:
        return bool(decode(self.text) == other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(decode(self.text))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (decode(self.text),)  # a copy is a plain dictionary


def _looked_at(name: str) -> property:
    def look(work: Work) -> Any:
        return getattr(_read(work), name)

    return property(look)


for _name in _SLOTS:
    setattr(UnreadWork, _name, _looked_at(_name))


def text_of(work: Work) -> str | None:
    """The text of work as it was written; None once it is parsed."""
    held = _TEXT.__get__(work)
    return held if isinstance(held, str) else None


def _read(work: Work) -> Work:
    held = _TEXT.__get__(work)
    if isinstance(held, str):  # otherwise another thread has just done so
        made = from_array(Work, decode(held))
        for name in reversed(_SLOTS):  # the text last: until then others may still read it
            _SLOTS[name].__set__(work, getattr(made, name))
    object.__setattr__(work, "__class__", Work)
    return work

"""What is known beside the entities and is never written down: every change of it is noted, so that
undoing finds how it was.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, TypeVar

T = TypeVar("T")

_NOTHING: Any = object()


class Notes:
    """The changes of some maps, in the order in which they were made."""

    def __init__(self) -> None:
        self._old: list[tuple[dict[str, Any], str, Any]] = []

    def __len__(self) -> int:
        return len(self._old)

    def note(self, values: dict[str, Any], key: str) -> None:
        self._old.append((values, key, values.get(key, _NOTHING)))

    def undo(self, length: int) -> None:
        """Back to when there were so many."""
        while len(self._old) > length:
            values, key, old = self._old.pop()
            if old is _NOTHING:
                values.pop(key, None)
            else:
                values[key] = old

    def clear(self) -> None:
        self._old.clear()


class Noted(MutableMapping[str, T]):
    """A map whose changes are noted. Its values are replaced, never changed in place."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._values: dict[str, T] = {}

    def __getitem__(self, key: str) -> T:
        return self._values[key]

    def __setitem__(self, key: str, value: T) -> None:
        self._notes.note(self._values, key)
        self._values[key] = value

    def __delitem__(self, key: str) -> None:
        self._notes.note(self._values, key)
        del self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

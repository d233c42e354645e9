"""The undo log of the state's data beside its entities: each change is noted with the old value.

Entities have a log of their own in `State`, because the store writes their changes; `State.undo`
undoes both together.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, TypeVar

T = TypeVar("T")

_NOTHING: Any = object()


class Journal:
    """The changes of some maps, in the order in which they were made."""

    def __init__(self) -> None:
        self._old: list[tuple[dict[Any, Any], Any, Any]] = []

    def __len__(self) -> int:
        return len(self._old)

    def note(self, values: dict[Any, Any], key: Any) -> None:
        self._old.append((values, key, values.get(key, _NOTHING)))

    def undo(self, length: int) -> None:
        """Undo the changes behind the first `length` ones."""
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

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._values: dict[str, T] = {}

    def __getitem__(self, key: str) -> T:
        return self._values[key]

    def __setitem__(self, key: str, value: T) -> None:
        self._journal.note(self._values, key)
        self._values[key] = value

    def __delitem__(self, key: str) -> None:
        self._journal.note(self._values, key)
        del self._values[key]

    def __contains__(self, key: object) -> bool:  # faster than the default, which catches KeyError
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

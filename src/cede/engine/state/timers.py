"""A queue of timers: at most one entry for each entity, checked again when it is due.

Entries are never moved: an entity that became due later (a renewed lease) gets a new entry when its
old one is due, so renewing costs nothing here.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from cede.engine.state.journal import Journal

Key = tuple[str, str]  # ("request" | "allocation" | "node" | "pool", id)


class _Scheduled(dict[Key, int]):
    """The instant of each entry. Setting one also puts it into the heap, so undo needs no more."""

    def __init__(self) -> None:
        super().__init__()
        self.heap: list[tuple[int, Key]] = []

    def __setitem__(self, key: Key, at: int) -> None:
        super().__setitem__(key, at)
        heapq.heappush(self.heap, (at, key))


class Timers:
    """Entries by instant. Changes are noted in the journal."""

    def __init__(self, due: Callable[[Key], int | None], journal: Journal) -> None:
        self._due = due  # the current instant of a key; None if it is not due any more
        self._journal = journal
        self._scheduled = _Scheduled()
        self._heap = self._scheduled.heap

    def schedule(self, key: Key, at: int | None) -> None:
        if at is None:
            return
        known = self._scheduled.get(key)
        if known is None or at < known:
            self._journal.note(self._scheduled, key)
            self._scheduled[key] = at

    def next(self) -> int | None:
        """The next instant at which an entity is really due."""
        while self._heap:
            at, key = self._heap[0]
            true = self._due(key) if self._scheduled.get(key) == at else None
            if true == at:
                return at
            self._pop()
            if true is not None:
                self.schedule(key, true)
        return None

    def pop_due(self, now: int) -> list[Key]:
        """All keys that are due at `now`, once each, in order of their instants."""
        due = []
        while (at := self.next()) is not None and at <= now:
            due.append(self._pop())
        return due

    def _pop(self) -> Key:
        at, key = heapq.heappop(self._heap)
        if self._scheduled.get(key) == at:
            self._journal.note(self._scheduled, key)
            del self._scheduled[key]
        return key

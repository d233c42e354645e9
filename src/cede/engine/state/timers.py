"""When something is due by itself: at most one entry per entity, checked again when it comes up.

Entries are never moved: an entity that became due later (a renewed lease) is put back when its old
entry comes up, so renewing costs nothing here.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

Key = tuple[str, str]  # ("request" | "allocation" | "node" | "pool", id)


class Timers:
    def __init__(self, due: Callable[[Key], int | None]) -> None:
        self._due = due  # what is true now; None when nothing is due any more
        self._heap: list[tuple[int, Key]] = []
        self._scheduled: dict[Key, int] = {}

    def schedule(self, key: Key, at: int | None) -> None:
        if at is None:
            return
        known = self._scheduled.get(key)
        if known is None or at < known:
            self._scheduled[key] = at
            heapq.heappush(self._heap, (at, key))

    def next(self) -> int | None:
        """The next instant at which something is really due."""
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
        """Everything due at `now`, once each, in order of its instant."""
        due = []
        while (at := self.next()) is not None and at <= now:
            due.append(self._pop())
        return due

    def _pop(self) -> Key:
        at, key = heapq.heappop(self._heap)
        if self._scheduled.get(key) == at:
            del self._scheduled[key]
        return key

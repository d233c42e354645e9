"""The cut of one line of a policy's fair share through its holdings, kept as they come and go.

Holdings stand in order; those before the cut are covered. The cut is a single place, so it is kept
by two sorted lists and one sum, and moving it costs as many steps as holdings cross it.
"""

from __future__ import annotations

from collections.abc import Callable

from sortedcontainers import SortedList

from cede.engine.fair.groups import Line
from cede.model.amounts import Amounts, add_to, take_from

# Non-preemptible first, then by last start.
CutPlace = tuple[bool, int, str]


class Cut:
    """One line and the holdings on both sides of it; `moved` is called with each holding that
    crosses it.
    """

    __slots__ = ("_amounts", "_behind", "_inside", "_line", "_moved", "_sum")

    def __init__(self, moved: Callable[[str], None]) -> None:
        self._line: Line | None = None  # without a share nothing is covered
        self._moved = moved
        self._amounts: dict[CutPlace, Amounts] = {}
        self._sum: dict[str, int] = {}  # of the covered holdings
        self._inside: SortedList[CutPlace] = SortedList()
        self._behind: SortedList[CutPlace] = SortedList()

    def covers(self, place: CutPlace) -> bool:
        return bool(self._inside) and place <= self._inside[-1]

    def draw(self, line: Line | None) -> None:
        """Set another line."""
        self._line = line
        self._shrink(None)
        self._grow()

    def add(self, place: CutPlace, amounts: Amounts) -> None:
        self._amounts[place] = amounts
        if self._behind and place > self._behind[0]:
            self._behind.add(place)
            return
        self._inside.add(place)
        add_to(self._sum, amounts)
        self._shrink(place)

    def remove(self, place: CutPlace) -> None:
        amounts = self._amounts.pop(place)
        if self.covers(place):
            self._inside.remove(place)
            take_from(self._sum, amounts)
        else:  # the next one may be smaller, and its own amounts count
            self._behind.remove(place)
        self._grow()

    def _covers(self, before: Amounts, after: Amounts) -> bool:
        return self._line is not None and self._line.covers(before, after)

    def _shrink(self, new: CutPlace | None) -> None:
        while self._inside:
            last = self._inside[-1]
            before = dict(self._sum)
            take_from(before, self._amounts[last])
            if self._covers(before, self._sum):
                return
            self._inside.pop()
            self._behind.add(last)
            self._sum = before
            if last != new:
                self._moved(last[2])

    def _grow(self) -> None:
        while self._behind:
            first = self._behind[0]
            after = dict(self._sum)
            add_to(after, self._amounts[first])
            if not self._covers(self._sum, after):
                return
            self._behind.pop(0)
            self._inside.add(first)
            self._sum = after
            self._moved(first[2])

"""Instants of the server's clock as times of day, and back.

The server's clock counts no time while its machine is off, so the difference between the two
changes; notes say from which instant on it was what. Before the first note its difference holds.
Going back is one way: of a time that was twice, or never, the first instant at which it is past is
meant, so that periods that follow each other on the wall do so on the server's clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from cede.model.bounds import DAY


class Note(NamedTuple):
    """From `at` on, the time of day in milliseconds since 1970 is the instant and `ahead`."""

    at: int
    ahead: int


class Wall:
    """`time` of an instant, `instant` of a time, both in milliseconds; days are of UTC."""

    def __init__(self, notes: Iterable[Note] = ()) -> None:
        self.notes = sorted(notes) or [Note(0, 0)]
        self._begins = [note.at for note in self.notes]
        self._last = (0, 0, 0)  # first instant, end and number of the last day asked for

    def time(self, instant: int) -> int:
        place = max(0, bisect_right(self._begins, instant) - 1)
        return instant + self.notes[place].ahead

    def instant(self, time: int) -> int:
        for place, note in enumerate(self.notes):
            found = time - note.ahead if place == 0 else max(note.at, time - note.ahead)
            last = place + 1 == len(self.notes)
            if last or found < self.notes[place + 1].at:
                return max(0, found)
        raise AssertionError("the last note has no end")

    def day(self, instant: int) -> int:
        """Days since 1970 in which an instant was: the last that had begun by then."""
        begin, end, day = self._last
        if begin <= instant < end:
            return day
        seen = [self.time(instant)]  # and how far the wall was before it was set back
        seen += [
            min(instant, end) + note.ahead
            for note, end in zip(self.notes, self._begins[1:], strict=False)
        ]
        day = max(seen) // DAY + 1
        while day > 0 and self.instant(day * DAY) > instant:
            day -= 1
        self._last = self.instant(day * DAY), self.instant((day + 1) * DAY), day
        return day

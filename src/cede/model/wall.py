"""Instants of the server's clock as times of day, and back.

The server's clock counts no time while its machine is off, so the difference between the two
changes. Notes record from which instant on it had which value; the first note's also holds before
it. Times of day that occurred twice or never map to the first instant at which they are past, so
that periods that follow each other by time of day do so on the server's clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from cede.model.bounds import DAY


class Note(NamedTuple):
    """From `at` on, the time of day in milliseconds since 1970 is the instant plus `ahead`."""

    at: int
    ahead: int


class Wall:
    """Converts between instants and times of day, both in milliseconds; days are of UTC."""

    def __init__(self, notes: Iterable[Note] = ()) -> None:
        self.notes = sorted(notes) or [Note(0, 0)]
        self._begins = [note.at for note in self.notes]
        self._last = (0, 0, 0)  # begin, end and number of the last day that was asked for

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
        """The number of the day since 1970 that contains an instant: the last that had begun by
        then.
        """
        begin, end, day = self._last
        if begin <= instant < end:
            return day
        seen = [self.time(instant)]  # with the times reached before the wall clock was set back
        seen += [
            min(instant, end) + note.ahead
            for note, end in zip(self.notes, self._begins[1:], strict=False)
        ]
        day = max(seen) // DAY + 1
        while day > 0 and self.instant(day * DAY) > instant:
            day -= 1
        self._last = self.instant(day * DAY), self.instant((day + 1) * DAY), day
        return day

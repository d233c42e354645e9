"""Signals from outside to running work: those to pass on, and those that end it.

A signal is the work's own business: an interactive program lives on after it. Two of them mean the
end: the work is killed and its request cancelled. Ctrl-C counts twice only in quick succession,
because people press it at a prompt all day.
"""

from __future__ import annotations

import math
import signal
import threading

from cede.client import clock
from cede.client.errors import CedeClientError

# Two Ctrl-C within so many seconds cancel. A key that is held repeats faster, a person at a prompt
# rarely presses it twice.
AGAIN_WITHIN = 2.0


class Interrupted(CedeClientError):
    """The program that started the work ended it; `number` is the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}")
        self.number = number


class Interruptions:
    """All signals so far. Signal handlers and any thread may add to it."""

    def __init__(self) -> None:
        # Set while a signal is pending: waiting threads check again.
        self.waiting = threading.Event()
        self.cancelled: int | None = None  # the signal that stands for it
        self.cancelled_at = math.inf
        self.kill_at = math.inf
        self._numbers: list[int] = []
        self._passed_on = 0
        self._is_told = False
        self._last_at = -math.inf

    def signal(self, number: int) -> None:
        """Note a signal for the work; the second of two cancels, see above."""
        now = clock.now()
        is_again = number != signal.SIGINT or now - self._last_at < AGAIN_WITHIN
        if self._numbers and is_again:
            self.cancel(self._numbers[-1], grace=0.0)
        self._numbers.append(number)
        self._last_at = now
        self.waiting.set()

    def cancel(self, number: int, grace: float) -> None:
        """End the work for good; after `grace` seconds it is killed."""
        if self.cancelled is None:
            self.cancelled_at = clock.now()
            self.kill_at = self.cancelled_at + grace
            self.cancelled = number
        self.waiting.set()

    @property
    def number(self) -> int:
        """The signal by which an interrupted wait ended."""
        return self.cancelled or self._numbers[-1]

    @property
    def passed_on(self) -> bool:
        """Whether a signal was ever passed on to the work."""
        return self._passed_on > 0

    def is_survived(self) -> bool:
        """Whether work lives on after a Ctrl-C; True once, so that the caller says how to cancel
        it."""
        is_first = not self._is_told and signal.SIGINT in self._numbers[: self._passed_on]
        self._is_told = self._is_told or is_first
        return is_first

    def take(self) -> list[int]:
        """Return signals that are to be passed on; they count as dealt with."""
        if self.cancelled is None:
            self.waiting.clear()
        taken = self._numbers[self._passed_on :]
        self._passed_on += len(taken)
        return taken

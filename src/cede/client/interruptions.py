"""What a person or a program tells running work from outside: signals to pass on, and the end.

A signal is the work's own business: an interactive program lives on after it. Two of them mean
the end: the work is killed and its request cancelled. Ctrl-C counts twice only in quick
succession, because people press it at a prompt all day.
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
    """Whoever started the work ended it; `number` is the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}")
        self.number = number


class Interruptions:
    """All that came so far. Signal handlers and any thread may add to it."""

    def __init__(self) -> None:
        # Set while something has not been dealt with: whoever waits looks again.
        self.waiting = threading.Event()
        self.cancelled: int | None = None  # the signal that stands for it
        self.cancelled_at = math.inf
        self.kill_at = math.inf
        self._numbers: list[int] = []
        self._passed_on = 0
        self._is_told = False
        self._last_at = -math.inf

    def signal(self, number: int) -> None:
        """A signal for the work; the second of two cancels, see above."""
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
        """The signal that an interrupted wait ended by."""
        return self.cancelled or self._numbers[-1]

    @property
    def passed_on(self) -> bool:
        """Whether work was ever told of a signal."""
        return self._passed_on > 0

    def is_survived(self) -> bool:
        """Whether work lives on after a Ctrl-C; True once, to say how it can be cancelled."""
        is_first = not self._is_told and signal.SIGINT in self._numbers[: self._passed_on]
        self._is_told = self._is_told or is_first
        return is_first

    def take(self) -> list[int]:
        """Signals that nobody has passed on yet; they count as dealt with."""
        if self.cancelled is None:
            self.waiting.clear()
        taken = self._numbers[self._passed_on :]
        self._passed_on += len(taken)
        return taken

"""The server's clock, and the only module that reads one.

Instants are integers of milliseconds: the last committed instant plus the time the machine has
counted since, suspended or not. In the same boot the time between two runs of the server counts;
after a reboot the clock goes on from the last committed instant, so that leases only ever get
longer. Wall-clock time is a label (S27).
"""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cede.store.values import Moment

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MILLISECOND = 1_000_000
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boottime() -> int:
    """Return the milliseconds since this machine started, with those in which it was suspended
    where the system counts them."""
    return time.clock_gettime_ns(_CLOCK) // _MILLISECOND


def boot_id() -> str:
    """Return the id of this boot.

    A new one each time where the system has none, so that no time is counted twice.
    """
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return uuid.uuid4().hex


def wall_milliseconds() -> int:
    return time.time_ns() // _MILLISECOND


def wall(after: timedelta = timedelta()) -> str:
    """Return a label for people: ISO 8601 in UTC, of a fixed form, so that labels compare as
    text."""
    then = datetime.now(UTC) + after
    return then.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def monotonic() -> float:
    """Return seconds, to measure how long an operation took."""
    return time.monotonic()


class Clock:
    """A clock that goes on from the last committed moment and never back."""

    def __init__(self, last: Moment) -> None:
        self._boot_id = boot_id()
        self._start = boottime()
        same_boot = last.boot_id == self._boot_id
        self._base = last.instant + (max(0, self._start - last.boottime) if same_boot else 0)
        self._latest = self._base

    def now(self) -> int:
        self._latest = max(self._latest, self._base + boottime() - self._start)
        return self._latest

    def moment(self, instant: int) -> Moment:
        """Return the moment to commit with an instant, so that the next run can go on from it."""
        return Moment(instant, self._boot_id, self._start + instant - self._base)

"""The clock that an application and its host share: seconds since boot, also while suspended."""

from __future__ import annotations

import time


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)

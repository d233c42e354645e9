"""The clocks of a node. What is promised goes by seconds since boot, which go on while the machine
sleeps: a deadline that one process writes is read by another. Files and what was printed go by the
time of day, which people know.
"""

from __future__ import annotations

import time


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def time_of_day() -> float:
    """What ages of files are counted from, and when output was printed; no promise is."""
    return time.time()

"""The clocks of a node. Promises go by seconds since boot, which go on while the machine is
suspended: a deadline that one process writes is read by another. Files and printed output go by the
time of day, which people know.
"""

from __future__ import annotations

import time


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def time_of_day() -> float:
    """The time of day, for ages of files and instants of output; no promise goes by it."""
    return time.time()

"""The one clock of this package: seconds since boot, which go on while the machine sleeps.

Leases are promises about real time, and a deadline that one process writes is read by another.
"""

from __future__ import annotations

import time


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)

"""The client's one clock: seconds that go on while the machine sleeps.

Leases are promises about real time. A laptop that was closed for an hour has lost its lease, and
the plain monotonic clock would not show it.
"""

from __future__ import annotations

import time


def now() -> float:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()

"""Ids that sort by the time at which they were made (uuid7).

New rows go to the end of every index, which keeps inserts cheap.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator

from cede.server import clock

_lock = threading.Lock()
_last = 0  # 48 bits of milliseconds and 12 of a counter: never the same twice in one process


def _tails() -> Iterator[int]:
    """Yield 62 random bits at a time, read from the system in bulk, because each read is a
    system call."""
    while True:
        for (number,) in struct.iter_unpack("<Q", os.urandom(4096)):
            yield number >> 2


_random_tails = _tails()


def new_id() -> str:
    """Return a uuid7, greater than every one that this process made before."""
    global _last
    stamp = clock.wall_milliseconds() << 12
    with _lock:
        _last = max(stamp, _last + 1)
        stamp = _last
        tail = next(_random_tails)
    milliseconds, count = stamp >> 12, stamp & 0xFFF
    bits = (milliseconds & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76 | count << 64 | 0b10 << 62 | tail
    digits = f"{bits:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

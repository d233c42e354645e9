"""Gives memory back to the system after large bodies and answers.

The database keeps pages that it has read. glibc keeps freed memory, in an arena for each thread
that ever allocated much; a server that was sent large bodies once would look large for ever.
Elsewhere than on glibc this does nothing.
"""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable
from contextlib import suppress

# Trimming takes milliseconds, and doing it more often would gain nothing.
EVERY_SECONDS = 5.0
_ARENA_MAX = -8  # of mallopt(3)
_ARENAS = 2


def _libc() -> ctypes.CDLL | None:
    with suppress(OSError, AttributeError):
        found = ctypes.CDLL(None)
        if found.malloc_trim and found.mallopt:
            return found
    return None


def share_arenas() -> None:
    """Let all threads allocate from a few arenas, so that memory freed by one can be used by
    another."""
    libc = _libc()
    if libc is not None:
        libc.mallopt(_ARENA_MAX, _ARENAS)


class Trimmer:
    """`soon` asks for a trim once the present rush is over; `call_later` is the event loop's.

    `first` drops caches that can be made again.
    """

    def __init__(self, first: Callable[[], None]) -> None:
        self._first = first
        self._libc = _libc()
        self._due = False

    def soon(self, call_later: Callable[[float, Callable[[], None]], object]) -> None:
        if self._libc is not None and not self._due:
            self._due = True
            call_later(EVERY_SECONDS, self._begin)

    def _begin(self) -> None:
        self._due = False
        # Beside the loop: the call releases the interpreter's lock while it works.
        threading.Thread(target=self._trim, name="cede-trim", daemon=True).start()

    def _trim(self) -> None:
        assert self._libc is not None
        self._first()
        # Collect what calls left in cycles, and no older objects, which would take long and are in
        # use.
        gc.collect(1)
        self._libc.malloc_trim(0)

"""A lock on a file that ends with its process, for the one writer of an SQLite database.

It is on a side file, because SQLite's own locks on the database would be dropped by any other close
of the same file in this process. Open-file-description locks belong to one open of the file and not
to the process, so two stores in one process exclude each other too.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import struct
from collections.abc import Callable
from pathlib import Path
from threading import Event

# The pause of a standby between two tries; short, because a restart waits for it.
POLL_SECONDS = 0.05

# struct flock on 64-bit Linux: type, whence, start, length, pid.
_WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_TAKEN = (errno.EAGAIN, errno.EACCES)


class FileLock:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    @property
    def held(self) -> bool:
        return self._file is not None

    def acquire(
        self,
        stop: Event | None = None,
        look: Callable[[], None] = lambda: None,
        every: float = POLL_SECONDS,
    ) -> bool:
        """Wait for the lock; False if `stop` was set first. Meanwhile `look` is called `every` so
        many seconds.
        """
        if self._file is not None:
            return True
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        pause = stop or Event()
        looks_after = max(1, round(every / POLL_SECONDS))
        for turn in itertools.count():
            if _try_lock(file):
                break
            if turn % looks_after == 0:
                look()
            if pause.wait(POLL_SECONDS):
                os.close(file)
                return False
        self._file = file
        return True

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _try_lock(file: int) -> bool:
    try:
        if hasattr(fcntl, "F_OFD_SETLK"):
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, _WHOLE_FILE)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True

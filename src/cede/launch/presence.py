"""A sign that some server has a database, for every process in the same network namespace.

A refused connection proves little: a proxy may be down, the server may be shutting down, or a
standby on another port may have taken over. The sign is a socket with an abstract name that is
derived from the database alone. The writer holds it from before it reads the database until after
its last commit, and the kernel removes it with the process, however that ends. A frozen process
keeps it.
"""

from __future__ import annotations

import errno
import hashlib
import socket
import sys
import time
from functools import cache
from pathlib import Path

from cede.launch import clock

# A killed server's lock on the database may be free a moment before its sign is.
PATIENCE = 5.0
PAUSE = 0.05


@cache
def name_of(database: Path) -> str:
    """The sign's name for this file, derived from its folder's identity, so that it survives a
    restore.
    """
    folder = database.absolute().parent.stat()
    identity = f"{folder.st_dev}/{folder.st_ino}/{database.name}"
    return "cede-" + hashlib.sha256(identity.encode()).hexdigest()[:32]


def is_shown(name: str) -> bool:
    """Whether a process holds the sign. In doubt it is held."""
    if not sys.platform.startswith("linux"):
        return True
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        return probe.connect_ex(f"\0{name}") != errno.ECONNREFUSED


class Presence:
    """One server's sign, from `show` to `hide`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._socket: socket.socket | None = None

    def show(self, patience: float = PATIENCE) -> bool:
        """Take the sign; False if another process keeps it, or the system has none."""
        if not sys.platform.startswith("linux"):
            return False
        taken = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        until = clock.boottime() + patience
        while True:
            try:
                taken.bind(f"\0{self.name}")
            except OSError as error:
                if error.errno == errno.EADDRINUSE and clock.boottime() < until:
                    time.sleep(PAUSE)
                    continue
                taken.close()
                return False
            self._socket = taken
            return True

    def hide(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

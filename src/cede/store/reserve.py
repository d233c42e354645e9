"""Disk space kept for a server that starts on a full disk: becoming the writer needs a little.

It is a file beside the database, given up when a start finds no space and taken again after it.
Commits of a running server do not use it: they wait until there is space again.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

SIZE = 8 * 1024 * 1024
SIZE_MIN = 512 * 1024


class Reserve:
    def __init__(self, path: Path) -> None:
        self.path = path

    def hold(self) -> bool:
        """Take the free space, up to `SIZE`; return whether any is held."""
        if self.path.exists():
            return True
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = SIZE
            while size >= SIZE_MIN:
                try:
                    os.posix_fallocate(file, 0, size)
                    return True
                except OSError as error:
                    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                        raise
                    os.ftruncate(file, 0)
                    size -= SIZE_MIN
        finally:
            os.close(file)
        self.path.unlink()
        return False

    def release(self) -> bool:
        """Give the space back; return whether there was any."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

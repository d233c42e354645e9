"""Opening what somebody else wrote, beneath a directory and without following a link.

Whoever runs in the directory may put anything there, also between two of our calls: links to other
people's files, FIFOs that block, devices. Every failure is an OSError, as if the file were missing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK the opening of a FIFO waits for its writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def directory(path: str | os.PathLike[str]) -> Iterator[int]:
    """A directory that its owner named: here, and only here, a link may stand."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_file(root: int, path: str) -> int:
    """A regular file for reading. `path` is relative, below the directory `root`, without `..`."""
    *parents, name = PurePosixPath(path).parts
    folder = os.dup(root)
    try:
        for parent in parents:
            inner = os.open(parent, _DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        # Asked before it is opened, because to open a device can be to use it.
        _demand_regular(os.stat(name, dir_fd=folder, follow_symlinks=False))
        file = os.open(name, _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        _demand_regular(os.fstat(file))
    except OSError:
        os.close(file)
        raise
    return file


def read_file(root: int, path: str, most: int) -> bytes:
    """A whole small file; one larger than `most` is EFBIG."""
    with os.fdopen(open_file(root, path), "rb") as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes")
    return content


def replace_file(root: int, name: str, content: bytes, *, sync: bool) -> None:
    """Put a whole file in place at once: a reader sees the old one or the new one."""
    partial = f"{name}.partial"
    with suppress(FileNotFoundError):  # of a writer that was killed
        os.unlink(partial, dir_fd=root)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(partial, flags, 0o644, dir_fd=root), "wb") as stream:
        stream.write(content)
        stream.flush()
        if sync:
            os.fsync(stream.fileno())
    if sync:
        os.fsync(root)
    os.rename(partial, name, src_dir_fd=root, dst_dir_fd=root)
    if sync:
        os.fsync(root)


def _demand_regular(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.ELOOP, "not a regular file")

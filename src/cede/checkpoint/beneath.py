"""Opening another account's files, beneath a directory and without following a link.

The owner of the directory may put anything there, also between two calls here: links to other
accounts' files, FIFOs that block, devices. Every failure is an OSError, as if the file were
missing.
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
    """A directory that its owner named: only here may the path contain a link."""
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
        # Checked before it is opened, because opening a device can already use it.
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
    """The content of a small file; a file larger than `most` is EFBIG."""
    with os.fdopen(open_file(root, path), "rb") as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes")
    return content


def replace_file(root: int, name: str, content: bytes, *, sync: bool) -> None:
    """Replace a file whole: a reader sees the old or the new content."""
    partial = f"{name}.partial"
    with suppress(FileNotFoundError):  # left by a writer that was killed
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

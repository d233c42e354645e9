"""The files of an attempt, and how they are opened.

    ATTEMPTS/ALLOCATION.TASK/
        spec.json         what to run, by what means this machine contains it, and what the agent
                          wants at first; written before the supervisor starts
        lock              held by the supervisor as long as it lives; another name of `wake`
        control.json      what the agent wants now, once that has changed
        wake              FIFO; a byte in it makes the supervisor look at control.json at once
        started.json      supervisor and work, written before the work's first instruction
        ended.json        how the work's first process ended; what it left behind may still run
        exit.json         how the attempt ended; nothing of it runs any more
        stdout.log …      and stdout.log.1, stdout.base
        order.log …       the order of the two; likewise

C6: every name is one component, opened beneath its directory without following links.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import string
import struct
from collections.abc import Callable
from typing import Any

from cede.model.errors import Invalid

SPEC = "spec.json"
CONTAINMENT = "containment.json"  # where earlier agents wrote the means
MEANS, WANTED = "containment", "control"  # their names in spec.json
LOCK = "lock"
CONTROL = "control.json"
WAKE = "wake"
STARTED = "started.json"
ENDED = "ended.json"
EXIT = "exit.json"
SUPERVISOR_LOG = "keeper.log"

NAME_MAX = 128
PIECE = 1 << 14
ALLOWED = frozenset(string.ascii_letters + string.digits + "._-")
# Made once: what is made anew for each file costs more than reading it.
_decode = json.JSONDecoder().raw_decode
_encode = json.JSONEncoder(allow_nan=False).encode
# struct flock: type, whence, start, length, pid.
FLOCK = "hhqqi4x"


def read_all(descriptor: int) -> bytes:
    """The rest of a file. A file object would make twice as many system calls."""
    data = b""
    while piece := os.read(descriptor, PIECE):
        data += piece
    return data


def component(field: str, name: object) -> str:
    """A name that is safe as one component of a path."""
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_MAX:
        raise Invalid(field, f"must be a name of 1 to {NAME_MAX} characters")
    if not ALLOWED.issuperset(name) or name[0] in ".-":
        raise Invalid(field, "must be letters, digits, '.', '_' and '-', and not begin with . or -")
    return name


def attempt_name(allocation: str, task: int) -> str:
    """The name of an attempt's directory and of its group."""
    return component("allocation", f"{allocation}.{task}")


class Place:
    """A directory that is held open. Close it, or use it in a `with`."""

    def __init__(self, path: str | os.PathLike[str], within: int | None = None) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self.fd = os.open(path, flags, dir_fd=within)
        self._lock = -1

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for each in (self._lock, self.fd):
            if each >= 0:
                os.close(each)
        self._lock = self.fd = -1

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(component("file", name), flags, mode, dir_fd=self.fd)

    def exists(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def read(self, name: str) -> Any:
        """The JSON in a file; None if there is no such file."""
        try:
            descriptor = self.open(name, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            value, _ = _decode(read_all(descriptor).decode())
            return value
        finally:
            os.close(descriptor)

    def read_spec(self) -> tuple[Any, Any, Any]:
        """The spec, the means of containment, and the agent's first wishes. If the latter are not
        in the same file, the attempt was prepared by an earlier agent, or not at all.
        """
        spec = self.read(SPEC)
        if spec is None or MEANS not in spec:
            return spec, self.read(CONTAINMENT), None
        return spec, spec.pop(MEANS), spec.pop(WANTED)

    def write(self, name: str, value: object, *, sync: bool = False, durable: bool = False) -> None:
        """Replace a file whole: a reader sees the old or the new content.

        With `sync` that holds after a loss of power too. With `durable` the new content is there
        then, and so is every file written here with `sync` before.
        """
        self.rename(self._new(name, value, sync or durable), name)
        if durable:
            os.fsync(self.fd)

    def create(self, name: str, value: object, between: Callable[[], None] | None = None) -> bool:
        """Write a file that is never written again; False if it exists already. Durable."""
        new = self._new(name, value, sync=True)
        if between is not None:
            between()
        created = self._link(new, name)
        os.unlink(new, dir_fd=self.fd)
        os.fsync(self.fd)
        return created

    def create_from(self, written: str, name: str, between: Callable[[], None]) -> bool:
        """The same for content that is in another file already: one file with two names."""
        descriptor = self.open(written, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        between()
        created = self._link(written, name)
        os.fsync(self.fd)
        return created

    def _link(self, old: str, new: str) -> bool:
        try:
            # Unlike a rename, a link never replaces: of two writers one wins.
            os.link(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except FileExistsError:
            return False
        return True

    def _new(self, name: str, value: object, sync: bool) -> str:
        new = f"{name}.{os.getpid()}"
        data = _encode(value).encode()
        descriptor = self.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            while data:
                data = data[os.write(descriptor, data) :]
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return new

    def lock(self) -> bool:
        """Take the attempt for this process until it ends or closes the place.

        It must not ask for the `holder` meanwhile: closing any descriptor of the file releases the
        lock.
        """
        self._lock = self.open(LOCK, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            self._lock = -1
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True

    def holder(self) -> int | None:
        """The pid of the process that holds the lock; a lock never outlives its process."""
        try:
            descriptor = self.open(LOCK, os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack(FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        finally:
            os.close(descriptor)
        return None if kind == fcntl.F_UNLCK else pid

"""A witness against rollback (S25): the last known commit, on a path of its own.

The writer anchors each commit after it is durable and before it is answered: the anchor is never
ahead of the database (K19), and a database that is behind it has lost commits. A standby anchors
the commits that it sees while it waits. Two slots are written in turn, each with a checksum: a torn
write damages one, and the other is older but valid.
"""

from __future__ import annotations

import fcntl
import os
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, select

from cede.model import bounds
from cede.store import schema
from cede.store.errors import RolledBack

_SLOT = 64
_LOCK_TRIES = 20
_LOCK_PAUSE = 0.05


@dataclass(frozen=True, slots=True, order=True)
class Witness:
    """The position of a commit. Not every commit moves the index, so they are counted as well;
    earlier versions did not, and theirs is 0. `lease` is the longest lease of a holder or a node
    until then, in milliseconds: a restored copy does not know it.
    """

    epoch: int
    index: int
    commits: int = 0
    lease: int = field(default=bounds.LEASE_MAX, compare=False)

    def __str__(self) -> str:
        return f"epoch {self.epoch}, index {self.index}, commit {self.commits}"


class Anchor:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._turn = 0
        self._last: Witness | None = None

    def read(self) -> Witness | None:
        """The newest whole slot; None if there is none."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        if not content.strip():
            return None  # created, and never written
        slots = [_parse(content[start : start + _SLOT]) for start in (0, _SLOT)]
        whole = [slot for slot in slots if slot is not None]
        if not whole:
            raise RolledBack(
                f"the anchor {self.path} is damaged, so a rollback of the database could not be "
                "noticed; check the database, then accept it: cede restore --accept"
            )
        return max(whole)

    def check(self, found: Witness) -> None:
        """Refuse a database that is older than the witness."""
        if (witness := self.read()) is not None and is_behind(found, witness):
            raise RolledBack(
                f"the database is at {found}, but {self.path} witnesses {witness}: "
                f"{_missing(found, witness)}; restore the newer one, or accept the loss: "
                "cede restore --accept"
            )

    def write(self, witness: Witness) -> None:
        """Witness a commit. The first call locks the file for this server."""
        if witness == self._last:
            return
        if self._file is None:
            self._file = self._open()
            _lock_soon(self._file)
            self._find_turn(self._file)
        os.pwrite(self._file, _format(witness), self._turn * _SLOT)
        os.fdatasync(self._file)
        self._turn = 1 - self._turn
        self._last = witness

    def follow(self, witness: Witness) -> None:
        """Witness a commit of another server, unless that server has the file locked, or the file
        has a later one.
        """
        file = self._open()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            known = self.read()
            if known is None or is_behind(known, witness):
                self._file = file
                self._find_turn(file)
                self.write(witness)
                self._file = None
        finally:
            os.close(file)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        """Open for writing, at its full length: a write never needs space."""
        new = not self.path.exists()
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if new:
            os.pwrite(file, b" " * (2 * _SLOT), 0)
            os.fsync(file)
            # The file's own name must last as well as its content.
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(folder)
            os.close(folder)
        return file

    def _find_turn(self, file: int) -> None:
        """The first write goes over the older slot."""
        first, second = (_parse(os.pread(file, _SLOT, start)) for start in (0, _SLOT))
        self._turn = 1 if first is not None and (second is None or second <= first) else 0


def _lock_soon(file: int) -> None:
    """Lock against standbys that follow, which lock for moments only. A deposed writer that is
    frozen may hold the lock for ever, and is not waited for: it commits nothing more.
    """
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE)


def witness_in(connection: Connection, *, counted: bool = True) -> Witness:
    """The position of a database's last commit; earlier versions `counted` no commits."""
    meta = schema.meta.c
    commits = (meta.commits,) if counted else ()
    return Witness(*connection.execute(select(meta.epoch, meta.head, *commits)).one())


def is_behind(found: Witness, witness: Witness) -> bool:
    return (
        found.index < witness.index
        or found.epoch < witness.epoch
        or found.commits < witness.commits
    )


def _missing(found: Witness, witness: Witness) -> str:
    lost = []
    if found.index < witness.index:
        lost.append(f"indexes {found.index + 1} to {witness.index}")
    if found.commits < witness.commits:
        lost.append(f"commits {found.commits + 1} to {witness.commits}")
    if found.epoch < witness.epoch:
        lost.append(f"epoch {witness.epoch}")
    return f"it was replaced by an older copy or lost its end, and misses {', '.join(lost)}"


def _format(witness: Witness) -> bytes:
    text = f"{witness.epoch} {witness.index} {witness.commits} {witness.lease}"
    checksum = zlib.crc32(text.encode())
    return f"{text} {checksum:08x}".ljust(_SLOT - 1).encode() + b"\n"


def _parse(slot: bytes) -> Witness | None:
    *numbers, checksum = slot.decode("ascii", "replace").split() or [""]
    if len(numbers) not in (2, 3, 4) or f"{zlib.crc32(' '.join(numbers).encode()):08x}" != checksum:
        return None
    return Witness(*map(int, numbers))

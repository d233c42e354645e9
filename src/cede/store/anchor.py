"""A witness against rollback (S25): the highest (epoch, index) known to be committed, on a path of
its own.

It is written after the commit it tells of, so it is never ahead of the database (K19); a database
that is behind it has lost commits. Two slots are written in turn, each with a checksum: a torn
write spoils one, and the other is older but true.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from cede.store.errors import RolledBack

_SLOT = 64


@dataclass(frozen=True, slots=True, order=True)
class Witness:
    epoch: int
    index: int


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
        slots = [_parse(content[start : start + _SLOT]) for start in (0, _SLOT)]
        whole = [slot for slot in slots if slot is not None]
        if not whole:
            raise RolledBack(
                f"the anchor {self.path} is damaged, so a rollback of the database could not be "
                "noticed; check the database, then remove the anchor to go on"
            )
        return max(whole)

    def check(self, epoch: int, index: int) -> None:
        """Refuse a database that is older than what was witnessed."""
        witness = self.read()
        if witness is not None and (index < witness.index or epoch < witness.epoch):
            raise RolledBack(
                f"the database is at epoch {epoch}, index {index}, but {self.path} witnesses epoch "
                f"{witness.epoch}, index {witness.index}: it was replaced by an older copy; "
                "restore the newer one, or remove the anchor to accept the loss"
            )

    def write(self, epoch: int, index: int) -> None:
        witness = Witness(epoch, index)
        if witness == self._last:
            return
        if self._file is None:
            self._file = self._open()
        os.pwrite(self._file, _format(witness), self._turn * _SLOT)
        os.fdatasync(self._file)
        self._turn = 1 - self._turn
        self._last = witness

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        """Open for writing, so that the first write goes over the older slot."""
        known = self.read()
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if known is None:
            # The file's own name must last as well as its content.
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(folder)
            os.close(folder)
        else:
            first = _parse(os.pread(file, _SLOT, 0))
            self._turn = 1 if first == known else 0
        return file


def _format(witness: Witness) -> bytes:
    text = f"{witness.epoch} {witness.index}"
    checksum = zlib.crc32(text.encode())
    return f"{text} {checksum:08x}".ljust(_SLOT - 1).encode() + b"\n"


def _parse(slot: bytes) -> Witness | None:
    parts = slot.decode("ascii", "replace").split()
    if len(parts) != 3 or f"{zlib.crc32(' '.join(parts[:2]).encode()):08x}" != parts[2]:
        return None
    return Witness(int(parts[0]), int(parts[1]))

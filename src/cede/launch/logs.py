"""The work's output, bounded: `stdout.log` and, when it is full, `stdout.log.1` before it.

A position counts from the first byte ever printed, so a reader that returns after a rotation knows
what it missed. `stdout.base` has the position at which `stdout.log` begins. `order.log` has the
order of the two streams in records of one size; see `cede.launch.order`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Self

from cede.launch.places import Place

STREAMS = ("stdout", "stderr")
# A reader that meets a rotation looks again; this many in a row do not happen.
LOOKS = 100


class Log:
    """The supervisor's end of a log. The file is made when there is something to write. A full or
    broken disk loses lines, never the work.
    """

    def __init__(self, place: Place, stream: str, most: int) -> None:
        self._place = place
        self._stream = stream
        self._most = most
        self._base = 0
        self._size = 0
        self._file = -1

    def begin(self) -> None:
        """Make the file, unless it exists."""
        if self._file < 0:
            self._file = self._open()

    @property
    def position(self) -> int:
        """The position after the last written byte."""
        return self._base + self._size

    def write(self, data: bytes) -> None:
        try:
            self.begin()
            while data:
                if self._size >= self._most:
                    self._rotate()
                written = os.write(self._file, data[: self._most - self._size])
                self._size += written
                data = data[written:]
        except OSError:
            return

    def append(self, records: Sequence[bytes]) -> int:
        """Write records of one size, each whole and in one file; returns how many were written."""
        written = 0
        try:
            self.begin()
            while written < len(records):
                size = len(records[written])
                if self._size + size > self._most:
                    self._rotate()
                fit = (self._most - self._size) // size
                data = b"".join(records[written : written + fit])
                whole = os.pwrite(self._file, data, self._size) // size
                self._size += whole * size
                written += whole
                if whole * size < len(data):
                    # The disk is full: no reader may take half a record for a whole one.
                    os.ftruncate(self._file, self._size)
                    return written
        except OSError:
            pass
        return written

    def replace_last(self, record: bytes) -> None:
        """Overwrite the last record with one of the same size."""
        with contextlib.suppress(OSError):
            os.pwrite(self._file, record, self._size - len(record))

    def _rotate(self) -> None:
        """Begin a new file. If a step fails, the next write does all of them again."""
        log = f"{self._stream}.log"
        with contextlib.suppress(FileNotFoundError):  # renamed by a try that failed later
            self._place.rename(log, f"{log}.1")
        base = self._base + self._size
        self._place.write(f"{self._stream}.base", base)
        new = self._open()
        os.close(self._file)
        self._file, self._base, self._size = new, base, 0

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        return self._place.open(f"{self._stream}.log", flags)


class Kept:
    """The kept bytes of one log, held open: a rotation takes none of them away.

    Close it, or use it in a `with`.
    """

    def __init__(self, older: int | None, current: int | None, base: int) -> None:
        self._older = older
        self._current = current
        self._base = base
        self.oldest = base - _size(older)

    @classmethod
    def open(cls, place: Place, stream: str) -> Self:
        for _ in range(LOOKS):
            base = place.read(f"{stream}.base") or 0
            older, current = _open(place, f"{stream}.log.1"), _open(place, f"{stream}.log")
            kept = cls(older, current, base)
            between = older is not None and current is None  # two steps of a rotation
            if not between and (place.read(f"{stream}.base") or 0) == base:
                return kept
            kept.close()
        return cls(None, None, place.read(f"{stream}.base") or 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for each in (self._older, self._current):
            if each is not None:
                os.close(each)
        self._older = self._current = None

    @property
    def exists(self) -> bool:
        return self._older is not None or self._current is not None

    @property
    def end(self) -> int:
        return self._base + _size(self._current)

    @property
    def written_at(self) -> float:
        """The time of day at which the last byte was written."""
        return 0.0 if self._current is None else os.fstat(self._current).st_mtime

    def read(self, position: int, most: int) -> bytes:
        """Up to `most` bytes from a position on, which is not before the oldest."""
        assert position >= self.oldest, (position, self.oldest)
        data = b""
        if self._older is not None and position < self._base:
            data = os.pread(self._older, most, position - self.oldest)
        if self._current is not None and len(data) < most:
            data += os.pread(self._current, most - len(data), max(position - self._base, 0))
        return data


def read_log(place: Place, stream: str, position: int, most: int) -> tuple[int, bytes]:
    """Up to `most` bytes from a position on, or from the oldest kept byte if that is later.

    Returns the position where they begin, and the bytes; none where nothing was printed yet.
    """
    assert stream in STREAMS, stream
    with Kept.open(place, stream) as kept:
        start = max(position, kept.oldest)
        return start, kept.read(start, most)


def _size(file: int | None) -> int:
    return 0 if file is None else os.fstat(file).st_size


def _open(place: Place, name: str) -> int | None:
    try:
        return place.open(name, os.O_RDONLY)
    except FileNotFoundError:
        return None

"""What the work prints, bounded: `stdout.log` and, when it is full, `stdout.log.1` before it.

A position counts from the first byte ever printed, so a reader who comes back after a rotation
knows what it missed. `stdout.base` says at which position `stdout.log` begins.
"""

from __future__ import annotations

import contextlib
import os

from cede.launch.places import Place

STREAMS = ("stdout", "stderr")
# A reader that meets a rotation looks again; so many in a row are not met.
LOOKS = 100


class Log:
    """The keeper's end. A full or broken disk loses lines, never the work."""

    def __init__(self, place: Place, stream: str, most: int) -> None:
        self._place = place
        self._stream = stream
        self._most = most
        self._base = 0
        self._size = 0
        self._file = self._open()

    def write(self, data: bytes) -> None:
        try:
            while data:
                if self._size >= self._most:
                    self._rotate()
                written = os.write(self._file, data[: self._most - self._size])
                self._size += written
                data = data[written:]
        except OSError:
            return

    def _rotate(self) -> None:
        """Begin a new file. Whichever step fails, the next write does all of them again."""
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


def read_log(place: Place, stream: str, position: int, most: int) -> tuple[int, bytes]:
    """Up to `most` bytes from a position on, or from the oldest kept byte if that is later.

    Answers where they begin, and the bytes; none where nothing was printed yet.
    """
    assert stream in STREAMS, stream
    for _ in range(LOOKS):
        base = place.read(f"{stream}.base") or 0
        older, current = _open(place, f"{stream}.log.1"), _open(place, f"{stream}.log")
        try:
            between = older is not None and current is None  # two steps of a rotation
            if not between and (place.read(f"{stream}.base") or 0) == base:
                return _read(older, current, base, position, most)
        finally:
            for each in (older, current):
                if each is not None:
                    os.close(each)
    return position, b""


def _read(
    older: int | None, current: int | None, base: int, position: int, most: int
) -> tuple[int, bytes]:
    size = os.fstat(older).st_size if older is not None else 0
    start = max(position, base - size)
    data = b""
    if older is not None and start < base:
        data = os.pread(older, most, start - (base - size))
    if current is not None and len(data) < most:
        data += os.pread(current, most - len(data), max(start - base, 0))
    return start, data


def _open(place: Place, name: str) -> int | None:
    try:
        return place.open(name, os.O_RDONLY)
    except FileNotFoundError:
        return None

"""The mapped page of the protocol `shm`: `talk/flag`, 4096 bytes, little-endian.

    offset  type        written by the host once
         0  char[8]     "CEDEFLAG"
         8  u32         version, 1
                        the hint, written by the host
        64  u64         number; 0 as long as there was none
        72  i64         deadline, nanoseconds of CLOCK_BOOTTIME
        80  u32         state: 0 none, 1 asked, 2 withdrawn, 3 asked to save and go on
        84  u32         0
        88  u32         CRC-32 of the bytes 64 to 87
                        the answer, written by the application
       128  u64         number of the hint that is answered
       136  u64         serial, one more with every answer
       144  u32         status: 1 answered, 2 saving, 3 saved, 4 failed, 5 deferred
       148  u32         deferrals: how often this hint was deferred
       152  f64         progress from 0 to 1; negative if unknown
       160  f64         estimate in seconds; negative if unknown
       168  f64         seconds of the last deferral
       176  char[256]   why, UTF-8, filled up with zeros
       432  u32         CRC-32 (that of zlib) of the bytes 128 to 431

A block with a wrong checksum is being written, or its writer was killed: it is read again later.
That needs no memory barriers and no locks, so that a short C program can take part. The host reads
and writes the file and never maps it, because an application that shortens a mapped file kills
every process that has it mapped.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib

from cede.checkpoint.words import Answer, Hint, Status

SIZE = 4096
HEADER = struct.Struct("<8sI")
MAGIC = (b"CEDEFLAG", 1)
HINT_AT = 64
HINT = struct.Struct("<QqII")
ANSWER_AT = 128
ANSWER = struct.Struct("<QQIIddd256s")
_CHECKSUM = struct.Struct("<I")
_ASKED, _WITHDRAWN, _GOES_ON = 1, 2, 3
_NANO = 1_000_000_000


def blank() -> bytes:
    page = bytearray(SIZE)
    HEADER.pack_into(page, 0, *MAGIC)
    return bytes(page)


def is_flag(page: bytes) -> bool:
    return len(page) == SIZE and HEADER.unpack_from(page) == MAGIC


def pack_hint(hint: Hint) -> bytes:
    state = _WITHDRAWN if hint.withdrawn else _GOES_ON if hint.goes_on else _ASKED
    return _sealed(HINT.pack(hint.number, int(hint.deadline * _NANO), state, 0))


def unpack_hint(page: bytes | mmap.mmap) -> Hint | None:
    block = _opened(page, HINT_AT, HINT.size)
    if block is None:
        return None
    number, deadline, state, _ = HINT.unpack(block)
    if number == 0 or state not in (_ASKED, _WITHDRAWN, _GOES_ON):
        return None
    return Hint(number, deadline / _NANO, state == _WITHDRAWN, state == _GOES_ON)


def pack_answer(answer: Answer, serial: int) -> bytes:
    return _sealed(
        ANSWER.pack(
            answer.number,
            serial,
            answer.status,
            answer.deferrals,
            -1.0 if answer.fraction is None else answer.fraction,
            -1.0 if answer.estimate is None else answer.estimate,
            answer.defer_seconds,
            answer.why.encode(errors="replace")[:256],
        )
    )


def unpack_answer(page: bytes) -> Answer | None:
    block = _opened(page, ANSWER_AT, ANSWER.size)
    if block is None:
        return None
    number, _, status, deferrals, fraction, estimate, seconds, why = ANSWER.unpack(block)
    if number == 0 or status == Status.NONE or status not in tuple(Status):
        return None
    text = why.rstrip(b"\0").decode(errors="replace")
    return Answer(number, Status(status), fraction, estimate, deferrals, seconds, text).sane()


class Mapped:
    """The application's side of the page."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._page = mmap.mmap(descriptor, SIZE)
        finally:
            os.close(descriptor)
        if HEADER.unpack_from(self._page) != MAGIC:
            raise OSError(f"{path} is not a flag of version {MAGIC[1]}")
        self._serial = int(ANSWER.unpack_from(self._page, ANSWER_AT)[1])

    def hint(self) -> Hint | None:
        return unpack_hint(self._page)

    def tell(self, answer: Answer) -> None:
        self._serial = (self._serial + 1) % 2**64
        block = pack_answer(answer, self._serial)
        self._page[ANSWER_AT : ANSWER_AT + len(block)] = block


def _sealed(block: bytes) -> bytes:
    return block + _CHECKSUM.pack(zlib.crc32(block))


def _opened(page: bytes | mmap.mmap, start: int, size: int) -> bytes | None:
    block = page[start : start + size + _CHECKSUM.size]
    if len(block) != size + _CHECKSUM.size:
        return None
    sealed = _CHECKSUM.unpack_from(block, size)[0] == zlib.crc32(block[:size])
    return block[:size] if sealed else None

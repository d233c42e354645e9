"""The order of the two streams: `order.log`, with a record of one size for each printed piece.

A record has the position of each stream, which of them was then written, how much and when. The
position in both streams together is the sum of the positions in each, so a position names one byte
in any view. The two logs are unchanged; a byte that no record covers, because the supervisor was
killed before it wrote one, comes after all others.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple, Self

from cede.launch.logs import STREAMS, Kept, Log
from cede.launch.places import Place

ORDER = "order"
BOTH = "both"
# Positions in stdout and stderr, time of day, length, milliseconds from first to last, stream.
RECORD = struct.Struct("<QQdIHBx")
# A piece that follows another of its stream this soon shares its record: printing a byte at a time
# must not fill the disk with records.
SPAN = 1.0
LENGTH_MAX = 1 << 30
# Records of one read at most: work that prints a byte to each stream in turn must not delay the
# agent.
RECORDS_MOST = 4096
# Records that are read at once.
BLOCK = 128
# How far back the last lines are looked for.
TAIL_BYTES = 1 << 20
TAIL_STEP = 1 << 14


class Piece(NamedTuple):
    """A record: `length` bytes of one stream, and the positions of both streams before them."""

    stdout: int
    stderr: int
    at: float
    length: int
    milliseconds: int
    stream: int

    @property
    def start(self) -> int:
        return self.stdout + self.stderr

    @property
    def end(self) -> int:
        return self.start + self.length

    def of(self, stream: int) -> int:
        """The position in one stream where it begins."""
        return self.stderr if stream else self.stdout

    @property
    def until(self) -> float:
        return self.at + self.milliseconds / 1000


class Order:
    """The supervisor's end of the order."""

    def __init__(self, place: Place, most: int) -> None:
        self._log = Log(place, ORDER, most - most % RECORD.size)
        self._covered = [0, 0]
        self._last: Piece | None = None
        self._now = 0.0

    def begin(self) -> None:
        """Make the file before a stream is written: logs without an order are those of an older
        supervisor.
        """
        with suppress(OSError):  # a full disk loses the order, never the work
            self._log.begin()

    def note(
        self, pieces: Sequence[tuple[str, int]], positions: Mapping[str, int], now: float
    ) -> None:
        """Record which streams were written in turn, and how much, up to `positions`.

        Pieces that could not be recorded before are covered by the next record of their stream;
        bytes that could not be written are in none.
        """
        self._now = now = max(self._now, now)  # records are searched by time
        left = [positions[stream] - self._covered[n] for n, stream in enumerate(STREAMS)]
        owed = list(left)
        for stream, length in pieces:
            owed[STREAMS.index(stream)] -= length
        new: list[Piece] = []
        stdout, stderr = self._covered
        for stream, length in pieces:
            number = STREAMS.index(stream)
            length = min(length + max(owed[number], 0), left[number])
            owed[number] = 0
            if length <= 0:
                continue
            left[number] -= length
            if not new and self._grow(number, length, now):
                stdout, stderr = self._covered
                continue
            new.append(Piece(stdout, stderr, now, length, 0, number))
            stdout, stderr = stdout + length * (not number), stderr + length * number
        written = self._log.append([RECORD.pack(*each) for each in new])
        if written:
            self._last = last = new[written - 1]
            self._covered = [last.stdout, last.stderr]
            self._covered[last.stream] += last.length

    def _grow(self, stream: int, length: int, now: float) -> bool:
        """Extend the last record, if it may; whether it did."""
        last = self._last
        if last is None or last.stream != stream or not _may_grow(last, length, now):
            return False
        spent = int((now - last.at) * 1000)
        self._last = last._replace(length=last.length + length, milliseconds=spent)
        self._log.replace_last(RECORD.pack(*self._last))
        self._covered[stream] += length
        return True


def _may_grow(last: Piece, length: int, now: float) -> bool:
    return now - last.at < SPAN and last.length + length <= LENGTH_MAX


class NoOrder(Exception):
    """The supervisor of this attempt wrote no order, because its version is too old."""


class Both:
    """A reader of both streams in order. Close it, or use it in a `with`.

    It begins at the oldest byte from which both streams are whole, so that its output has no gaps.
    `over`: nothing is printed any more, so bytes that no record covers can be read too.
    """

    def __init__(self, place: Place, *, over: bool) -> None:
        with ExitStack() as stack:
            # The streams last: then they have, or had, all that the records cover.
            self._order = stack.enter_context(Kept.open(place, ORDER))
            size = RECORD.size
            first, last = self._order.oldest // size, self._order.end // size
            self.streams = [stack.enter_context(Kept.open(place, each)) for each in STREAMS]
            # Checked again: it may have been made meanwhile, with the first of the streams.
            has_output = any(each.exists for each in self.streams)
            if has_output and not self._order.exists and not place.exists(f"{ORDER}.log"):
                raise NoOrder
            self._block: tuple[int, bytes] = (0, b"")
            self._records, self._rest = range(first, last), list[Piece]()
            if over:
                self._rest = self._uncovered()
            self._all = range(first, last + len(self._rest))
            self.end = self._piece(self._all[-1]).end if self._all else 0
            self.oldest = self._oldest()
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self, position: int, most: int) -> bytes:
        """Up to `most` bytes from a position on, which is not before the oldest; fewer where the
        records are small, none only at the end.
        """
        data = b""
        index = self._at(position)
        for each in self._all[index : index + RECORDS_MOST] if index >= 0 else ():
            piece = self._piece(each)
            skip = max(position - piece.start, 0)
            wanted = min(piece.length - skip, most - len(data))
            if wanted <= 0:
                continue
            kept = self.streams[piece.stream]
            found = kept.read(piece.of(piece.stream) + skip, wanted)
            data += found
            if len(found) < wanted or len(data) == most:
                break
        return data

    def since(self, at: float, stream: int | None = None) -> int:
        """The position of the output printed at a time of day or later, to the second."""
        index = bisect_left(self._all, at, key=lambda each: self._piece(each).until)
        if index < len(self._all):
            piece = self._piece(self._all[index])
            return piece.start if stream is None else piece.of(stream)
        return self.end if stream is None else self.streams[stream].end

    def _oldest(self) -> int:
        oldest = self._piece(self._all[0]).start if self._all else 0
        for number, kept in enumerate(self.streams):
            index = self._last(lambda piece: piece.of(number), kept.oldest)  # noqa: B023
            if kept.oldest and index >= 0:
                piece = self._piece(self._all[index])
                left_out = kept.oldest - piece.of(number) if piece.stream == number else 0
                oldest = max(oldest, piece.start + left_out)
        return oldest

    def _at(self, position: int) -> int:
        return self._last(lambda piece: piece.start, position)

    def _last(self, key: Callable[[Piece], int], most: int) -> int:
        """The last record whose key is at most `most`; -1 if there is none."""
        return bisect_right(self._all, most, key=lambda each: key(self._piece(each))) - 1

    def _piece(self, index: int) -> Piece:
        if index >= self._records.stop:
            return self._rest[index - self._records.stop]
        at, block = self._block
        if not at <= index < at + len(block) // RECORD.size:
            at = max(index - index % BLOCK, self._records.start)
            most = min(BLOCK, self._records.stop - at)
            block = self._order.read(at * RECORD.size, most * RECORD.size)
            self._block = at, block
        return Piece(*RECORD.unpack_from(block, (index - at) * RECORD.size))

    def _uncovered(self) -> list[Piece]:
        """The output after the last record, as records of each stream."""
        covered = [0, 0]
        if self._records:
            last = self._piece(self._records[-1])
            covered = [last.stdout, last.stderr]
            covered[last.stream] += last.length
        found = []
        for number, kept in enumerate(self.streams):
            covered[number] = max(covered[number], kept.oldest)
            if length := kept.end - covered[number]:
                stdout, stderr = covered
                found.append(Piece(stdout, stderr, kept.written_at, length, 0, number))
                covered[number] = kept.end
        return found


class Output(NamedTuple):
    """A piece of the output; `end`: nothing will follow."""

    start: int
    data: bytes
    end: bool


def read_output(
    place: Place,
    stream: str,
    position: int,
    most: int,
    *,
    over: bool,
    tail: int | None = None,
    since: float | None = None,
) -> Output:
    """Up to `most` bytes of a stream or of both, from a position on or, if that is later, from the
    oldest kept byte, the last `tail` lines or the output `since` a time of day.

    Raises `NoOrder` if the supervisor wrote none and the question needs one.
    """
    with ExitStack() as stack:
        both = None
        if stream == BOTH or since is not None:
            both = stack.enter_context(Both(place, over=over))
        view: Kept | Both
        if stream == BOTH:
            assert both is not None
            view = both
        else:
            view = stack.enter_context(Kept.open(place, stream))
        start, end = max(position, view.oldest), view.end
        if both is not None and since is not None:
            number = None if stream == BOTH else STREAMS.index(stream)
            start = max(start, both.since(since, number))
        if tail is not None:
            start = max(start, last_lines(view, tail))
        data = view.read(start, most)
        return Output(start, data, over and start + len(data) >= end)


def last_lines(view: Kept | Both, lines: int) -> int:
    """The position of the last lines, as far as they are near the end."""
    end = view.end
    floor = max(view.oldest, end - TAIL_BYTES)
    position, left = end, lines
    if not lines:
        return end
    while position > floor:
        before = max(position - TAIL_STEP, floor)
        data = _whole(view, before, position - before)
        if position == end and data.endswith(b"\n"):
            data = data[:-1]  # the end of the last line
        while left and (at := data.rfind(b"\n")) >= 0:
            left -= 1
            if not left:
                return before + at + 1
            data = data[:at]
        position = before
    return floor


def _whole(view: Kept | Both, position: int, length: int) -> bytes:
    data = b""
    while len(data) < length and (more := view.read(position + len(data), length - len(data))):
        data += more
    return data

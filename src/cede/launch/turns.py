"""The supervisor's end of the work's two pipes: the output in the order in which it was printed.

A pipe does not tell when its bytes came. A reader of both that reads as they become readable gets
the order right while it is woken between two writes, and work that prints to both in a loop is
faster than that. The kernel tells (inotify) which pipe was written after which, one event for each
run of writes to the same one, but not how much: where one stream has several runs at once, each but
the last of them is taken for one line.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Iterator, Mapping

from cede.launch.processes import libc

CHUNK = 1 << 16
EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of a name; a pipe has none
EVENTS_MOST = 256
IN_MODIFY = 0x2


class Turns:
    """Reads both pipes, which do not block."""

    def __init__(self, pipes: Mapping[str, int]) -> None:
        self.open = dict(pipes)
        self._data: dict[str, deque[bytes]] = {stream: deque() for stream in pipes}
        self._chunks: set[str] = set()  # streams whose data is not yet in lines
        self._runs: deque[str] = deque()
        self._waiting = dict.fromkeys(pipes, 0)  # the number of runs of each stream
        self._last = ""
        self._inotify = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        # On a machine without free inotify instances the streams come one after the other within
        # one look.
        self._watches = {self._watch(pipe): stream for stream, pipe in pipes.items()}

    def _watch(self, pipe: int) -> int:
        if self._inotify < 0:
            return -1
        watch: int = libc.inotify_add_watch(
            self._inotify, f"/proc/self/fd/{pipe}".encode(), IN_MODIFY
        )
        return watch

    def read(self) -> Iterator[tuple[str, bytes]]:
        """The present output in pieces, bounded, so that a flood does not delay its reader; none if
        there is no output.
        """
        for stream in list(self.open):
            if not self._data[stream]:
                self._fill(stream)
        # Only now: the bytes of an event that is there are read already or readable.
        self._look()
        for _ in range(EVENTS_MOST):
            if not self._runs:
                break
            stream = self._runs[0]
            if not self._has_line_for_each(stream):
                self._fill(stream)
            stale = self._is_stale(stream)
            self._runs.popleft()
            self._waiting[stream] -= 1
            if stale:
                continue
            if not self._waiting[stream]:
                self._look()  # the rest of many
            if self._data[stream]:
                yield stream, self._take(stream, all_of_it=not self._waiting[stream])
        for stream, data in self._data.items():
            if data and not self._runs:
                yield stream, self._take(stream, all_of_it=True)

    def _has_line_for_each(self, stream: str) -> bool:
        runs = self._waiting[stream]
        if runs > 1:
            self._split(stream)
        return len(self._data[stream]) >= runs

    def _split(self, stream: str) -> None:
        """Split chunks into lines."""
        if stream in self._chunks:
            self._chunks.remove(stream)
            data = self._data[stream]
            lines = b"".join(data).splitlines(keepends=True)
            data.clear()
            data.extend(lines)

    def _is_stale(self, stream: str) -> bool:
        """Whether a run's bytes were read before its event was there: it then follows another run
        of its stream, and has no line of its own.
        """
        if stream != self._last or self._waiting[stream] < 2:
            return False
        return not self._has_line_for_each(stream)

    def _take(self, stream: str, *, all_of_it: bool) -> bytes:
        self._last = stream
        data = self._data[stream]
        if not all_of_it:
            self._split(stream)
            return data.popleft()
        whole = b"".join(data) if len(data) > 1 else data[0]
        data.clear()
        return whole

    def _fill(self, stream: str) -> None:
        """Read a chunk; a stream is open while a process can print to it."""
        if stream not in self.open:
            return
        try:
            data = os.read(self.open[stream], CHUNK)
        except BlockingIOError:
            return
        if data:
            self._data[stream].append(data)
            self._chunks.add(stream)
        else:
            del self.open[stream]

    def _look(self) -> None:
        if self._inotify < 0 or len(self._runs) >= EVENTS_MOST:
            return
        try:
            data = os.read(self._inotify, EVENT.size * EVENTS_MOST)
        except BlockingIOError:
            return
        for watch, _, _, _ in EVENT.iter_unpack(data):
            stream = self._watches.get(watch)  # None if events were lost
            if stream is not None:
                self._runs.append(stream)
                self._waiting[stream] += 1

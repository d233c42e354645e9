"""Load on a server from one process: many connections, one call at a time on each, raw sockets.

It does so little for each call that the server is what is measured; what it used itself is part of
every result, so that a reader can see it.
"""

from __future__ import annotations

import json
import os
import re
import select
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE = 60.0
_PIECE = 1 << 18
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)

# The calls to make, each as the bytes that go over the wire.
Calls = Iterator[bytes]
# Told the status and the body of every answer.
Check = Callable[[int, bytes], None]


@dataclass(frozen=True)
class Result:
    """`server` and `own` are processor seconds; `times` is how long each call took, sorted."""

    calls: int
    seconds: float
    server: float
    own: float
    times: list[float]

    @property
    def rate(self) -> float:
        return self.calls / self.seconds

    @property
    def cost(self) -> float:
        """Microseconds of the server's processors that one call took."""
        return 1e6 * self.server / self.calls

    def within(self, part: float) -> float:
        """Milliseconds within which that part of the calls were answered."""
        return 1e3 * self.times[min(int(part * len(self.times)), len(self.times) - 1)]

    def __str__(self) -> str:
        return (
            f"{self.rate:,.0f}/s, server {self.cost:,.0f} us a call (generator "
            f"{1e6 * self.own / self.calls:,.0f}), p50 {self.within(0.5):.1f} ms, "
            f"p99 {self.within(0.99):.1f} ms"
        )


def call_bytes(method: str, path: str, token: str, body: object | None = None) -> bytes:
    """One call as it goes over the wire."""
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    if content:
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    return head.encode() + b"\r\n" + content


def all_good(status: int, body: bytes) -> None:
    assert 200 <= status < 300, (status, body[:500])


class Load:
    """So many open connections to one server, whose process has the id `pid`."""

    def __init__(self, address: tuple[str, int], connections: int, pid: int) -> None:
        self._pid = pid
        self._open = [Connection(address) for _ in range(connections)]

    def close(self) -> None:
        for each in self._open:
            each.socket.close()

    def run(self, calls: Iterable[bytes], check: Check = all_good) -> Result:
        """Make all these calls, as fast as the answers come."""
        left = iter(calls)
        poll = select.epoll()
        busy: dict[int, Connection] = {}
        times: list[float] = []
        server, own, started = processor_seconds(self._pid), process_time(), perf_counter()
        try:
            for each in self._open:
                if each.send_next(left):
                    busy[each.socket.fileno()] = each
                    poll.register(each.socket.fileno(), select.EPOLLIN)
            while busy:
                ready = poll.poll(PATIENCE)
                assert ready, f"no answer within {PATIENCE:.0f} s"
                for number, _ in ready:
                    connection = busy[number]
                    if (answer := connection.receive()) is None:
                        continue
                    times.append(perf_counter() - connection.sent_at)
                    check(*answer)
                    if not connection.send_next(left):
                        poll.unregister(number)
                        del busy[number]
        finally:
            poll.close()
        took = perf_counter() - started
        used = processor_seconds(self._pid) - server
        return Result(len(times), took, used, process_time() - own, sorted(times))


class Connection:
    """A socket with one call at a time on it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent_at = 0.0
        self._parts = b""

    def send_next(self, calls: Calls) -> bool:
        """Send the next call; whether there was one."""
        call = next(calls, None)
        if call is None:
            return False
        self.sent_at = perf_counter()
        self.socket.sendall(call)
        return True

    def receive(self) -> tuple[int, bytes] | None:
        """The status and the body, once all of the answer is there."""
        piece = self.socket.recv(_PIECE)
        assert piece, "the server closed a connection"
        self._parts += piece
        head, found, body = self._parts.partition(b"\r\n\r\n")
        if not found:
            return None
        length = _LENGTH.search(head)
        if length is not None and len(body) < int(length[1]):
            return None
        self._parts = b""
        return int(head[9:12]), body


def processor_seconds(pid: int) -> float:
    """What a process has used so far, all of its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS

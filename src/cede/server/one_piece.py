"""An answer that is whole leaves in one piece.

uvicorn writes the head of an answer, then its body: two calls of the system, and a reader that is
woken twice. Here the head waits for the body, and both are written at once. What is streamed goes
uvicorn's way, its head at once.
"""

from __future__ import annotations

from typing import Any

from starlette.types import Message
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

_START = "http.response.start"
_LENGTH = b"content-length"
# With one of these, or without a length, uvicorn decides what becomes of the connection.
_UNUSUAL = frozenset({b"connection", b"transfer-encoding"})


class OnePiece:
    """Takes what an app sends of one answer, in the place of the cycle's own `send`."""

    __slots__ = ("_cycle", "_head")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle: Any = cycle  # uvicorn has types of its own for what starlette calls messages
        self._head: Message | None = None

    async def __call__(self, message: Message) -> None:
        cycle, head = self._cycle, self._head
        if head is None:
            if message["type"] == _START and self._may_wait(message):
                self._head = message
            else:
                await cycle.send(message)
            return
        self._head = None
        body = message.get("body", b"")
        given = dict(head["headers"])[_LENGTH]
        if message.get("more_body", False) or int(given) != len(body):
            await cycle.send(head)
            await cycle.send(message)
            return
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if not cycle.disconnected:
            self._write(head, body)

    def _may_wait(self, message: Message) -> bool:
        cycle, names = self._cycle, {name for name, _ in message["headers"]}
        usual = _LENGTH in names and _UNUSUAL.isdisjoint(names)
        return usual and not cycle.response_started and cycle.scope["method"] != "HEAD"

    def _write(self, head: Message, body: bytes) -> None:
        cycle = self._cycle
        fields = [*cycle.default_headers, *head["headers"]]
        if not cycle.keep_alive:
            fields.append((b"connection", b"close"))
        lines = b"".join([b"%b: %b\r\n" % field for field in fields])
        if lines.count(b"\n") != len(fields) or lines.count(b"\r") != len(fields):
            raise RuntimeError("a field of an answer has more than one line")
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.transport.writelines((STATUS_LINE[head["status"]], lines, b"\r\n", body))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()

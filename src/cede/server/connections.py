"""Bounds on connections, kept below HTTP: their number, and the time and size of a request's head,
body and answer.

Connections have three shares of the descriptors: strangers (no call with a valid token yet), people
and agents. A full share never takes from another, so callers without a token cannot keep agents
out. Within a share the group that has most (an address of strangers, a token of people) gives up
its oldest connection, so a new caller gets in whatever others hold open.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import structlog
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from cede.model import bounds
from cede.server.one_piece import OnePiece

# The scope's key under which a handler finds the connection of its call.
SCOPE_KEY = "cede.connection"
# Descriptors for the database, the log, children and other files.
_OTHER_FILES = 128
_STRANGERS_MAX = 1_024
_SWEEP_SECONDS = 1.0
# Calls sent ahead on one connection; no client of cede's sends any.
_PIPELINE_MAX = 8
# How much of a refused body is read, so that its sender gets to read the answer.
_DISCARD_MAX = bounds.BODY_BYTES_MAX

_log = structlog.get_logger("cede.connections")


def room_for_connections() -> int:
    """Return how many connections fit below the descriptor limit, which is raised as far as it
    goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = bounds.CONNECTIONS_MAX + _OTHER_FILES
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    limit = most if soft == resource.RLIM_INFINITY else min(soft, most)
    return max(limit - _OTHER_FILES, 24)


class Share:
    """The connections of one kind, by group, oldest first."""

    def __init__(self, most: int, most_of_group: int) -> None:
        self.most = most
        self.most_of_group = most_of_group
        self.count = 0
        self._groups: dict[str, dict[Connection, None]] = {}

    def add(self, connection: Connection, group: str) -> None:
        """Add a connection; beyond the bound the oldest one of the largest group is dropped."""
        members = self._groups.setdefault(group, {})
        members[connection] = None
        self.count += 1
        if len(members) > self.most_of_group:
            self._drop_oldest(members)
        elif self.count > self.most:
            self._drop_oldest(max(self._groups.values(), key=len))

    def remove(self, connection: Connection, group: str) -> None:
        members = self._groups.get(group, {})
        if connection in members:
            del members[connection]
            self.count -= 1
            if not members:
                del self._groups[group]

    def __iter__(self) -> Iterator[Connection]:
        return (each for members in self._groups.values() for each in members)

    @staticmethod
    def _drop_oldest(members: dict[Connection, None]) -> None:
        next(iter(members)).drop("others need its place")


class Connections:
    """Every open connection of one server."""

    def __init__(self, most: int) -> None:
        strangers = min(_STRANGERS_MAX, max(most // 8, 8))
        people = max(most * 3 // 8, 8)
        self.strangers = Share(strangers, max(strangers // 4, 8))
        self.people = Share(people, people)
        self.agents = Share(max(most - strangers - people, 8), most)
        self._sweeping = False

    @property
    def count(self) -> int:
        return self.strangers.count + self.people.count + self.agents.count

    def sweep_from_now_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check every second, while there are any connections, for those that take too long."""
        if not self._sweeping:
            self._sweeping = True
            loop.call_later(_SWEEP_SECONDS, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for share in (self.strangers, self.people, self.agents):
            for each in list(share):
                each.check_time(now)
        self._sweeping = False
        if self.count:
            self.sweep_from_now_on(loop)


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, bounded. `registry` is set by `protocol_for`."""

    registry: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._share = self.registry.strangers
        self._group = self.client[0] if self.client else ""
        self._in_head = True
        self._head_bytes = 0
        self._header_bytes = 0
        self._discarded = 0
        self.url = b""
        # Since when the peer must send, and since when it does not read what was sent to it.
        self._owes_since: float | None = self.loop.time()
        self._unread_since: float | None = None
        self._share.add(self, self._group)
        self.registry.sweep_from_now_on(self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        self._share.remove(self, self._group)
        super().connection_lost(exc)
        # Both refer back to this object: without them the memory is free at once, not at the next
        # collection.
        self.cycle = None  # type: ignore[assignment]
        self.scope = {}  # type: ignore[typeddict-item]

    def known_as(self, token_id: str, *, agent: bool) -> None:
        """Move the connection out of the strangers' share: a call with this valid token came in."""
        share = self.registry.agents if agent else self.registry.people
        if (share, token_id) == (self._share, self._group) or self.transport.is_closing():
            return
        self._share.remove(self, self._group)
        self._share, self._group = share, token_id
        share.add(self, token_id)

    def drop(self, why: str) -> None:
        """Abort the connection without an answer: its peer may not be reading."""
        _log.debug("a connection was closed", peer=self.client, why=why)
        # At once, so that it is not chosen again before its end is known.
        self._share.remove(self, self._group)
        self.transport.abort()

    def check_time(self, now: float) -> None:
        most = bounds.HEAD_TIME if self._in_head else bounds.BODY_TIME
        if self._owes_since is not None and now - self._owes_since > most / bounds.SECOND:
            self.drop(f"the {'head' if self._in_head else 'body'} of a call took too long")
        elif (
            self._unread_since is not None
            and now - self._unread_since > bounds.ANSWER_TIME / bounds.SECOND
        ):
            self.drop("an answer was not read")

    # The request --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            if self._owes_since is None:
                self._owes_since = self.loop.time()
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > bounds.HEADER_BYTES_MAX:
            self._refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_bytes = 0
        cast(dict[str, Any], self.scope)[SCOPE_KEY] = self

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > bounds.HEADER_BYTES_MAX:
            raise _TooLarge

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > bounds.HEADER_BYTES_MAX or len(self.headers) >= bounds.HEADERS_MAX:
            raise _TooLarge
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= _PIPELINE_MAX:
            raise _TooLarge
        self._in_head = False
        self._owes_since = self.loop.time()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self.cycle.response_complete:
            self._discarded += len(body)
            if self._discarded > _DISCARD_MAX:
                self.transport.close()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self._discarded = 0
        self._owes_since = None
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer when the parser has stopped, over its own grammar or over one of the bounds
        here."""
        if self._head_too_large():
            self._refuse_head()
        elif not self.transport.is_closing():
            super().send_400_response(msg)

    def _head_too_large(self) -> bool:
        return (
            len(self.headers or ()) >= bounds.HEADERS_MAX
            or max(len(self.url), self._header_bytes) > bounds.HEADER_BYTES_MAX
        )

    def _refuse_head(self) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(_HEAD_TOO_LARGE)
        self.transport.close()

    # The answer ---------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        async def answered(scope: Scope, receive: Receive, send: Send) -> None:
            await app(scope, receive, OnePiece(cycle))

        super()._start_asgi_task(cycle, cast(Any, answered))

    def pause_writing(self) -> None:
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()


class _TooLarge(Exception):
    """Stops the parser."""


_TEXT = (
    b'{"type":"urn:cede:problem:head_too_large","title":"Too large","status":431,"detail":'
    b'"the head of a call has at most %d fields and %d bytes"}'
    % (bounds.HEADERS_MAX, bounds.HEADER_BYTES_MAX)
)
_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/problem+json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(_TEXT), _TEXT)
)


def protocol_for(registry: Connections) -> type[asyncio.Protocol]:
    """Return the protocol class of one server, for uvicorn's `http`."""
    return type("ServerConnection", (Connection,), {"registry": registry})

"""Answers that are whole leave in one piece, streams as they come; nothing else about them
changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from cede.server.one_piece import OnePiece

LENGTH = (b"content-length", b"5")
LOG = logging.getLogger("test")


class Transport:
    """Notes each write, whole, and whether it was closed."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))

    def writelines(self, pieces: Iterable[bytes]) -> None:
        self.writes.append(b"".join(pieces))

    def close(self) -> None:
        self.closed = True


class Called:
    """One call on a connection of uvicorn's, and what is sent of its answer."""

    def __init__(self, method: str = "GET", *, keep_alive: bool = True) -> None:
        self.transport = Transport()
        self.over = 0
        transport: Any = self.transport
        self.cycle = RequestResponseCycle(
            scope={"type": "http", "method": method},  # type: ignore[arg-type, typeddict-item]
            transport=transport,
            flow=FlowControl(transport),
            logger=LOG,
            access_logger=LOG,
            access_log=False,
            default_headers=[(b"date", b"today")],
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=keep_alive,
            on_response=self._ended,
        )
        self.send = OnePiece(self.cycle)

    def _ended(self) -> None:
        self.over += 1

    def answer(self, *bodies: bytes, headers: Iterable[tuple[bytes, bytes]] = (LENGTH,)) -> None:
        async def all_of_it() -> None:
            start = {"type": "http.response.start", "status": 200, "headers": list(headers)}
            await self.send(start)
            for number, body in enumerate(bodies, 1):
                more = number < len(bodies)
                await self.send({"type": "http.response.body", "body": body, "more_body": more})

        asyncio.run(all_of_it())


def test_a_whole_answer_is_one_write() -> None:
    called = Called()
    called.answer(b"hello")
    head = b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 5\r\n\r\n"
    assert called.transport.writes == [head + b"hello"]
    assert called.cycle.response_complete and called.over == 1 and not called.transport.closed


def test_a_connection_that_is_not_kept_is_closed_behind_it() -> None:
    called = Called(keep_alive=False)
    called.answer(b"hello")
    (answer,) = called.transport.writes
    assert b"\r\nconnection: close\r\n" in answer and called.transport.closed


def test_a_stream_begins_at_once_and_goes_on_piece_by_piece() -> None:
    called = Called()
    called.answer(b"one", b"two", headers=[(b"content-type", b"text/event-stream")])
    head, *pieces = called.transport.writes
    assert head.endswith(b"\r\n\r\n") and b"transfer-encoding: chunked" in head
    assert pieces == [b"3\r\none\r\n", b"3\r\ntwo\r\n0\r\n\r\n"]


def test_an_answer_in_several_pieces_of_known_length_goes_as_it_did() -> None:
    called = Called()
    called.answer(b"he", b"llo")
    assert b"".join(called.transport.writes).endswith(b"content-length: 5\r\n\r\nhello")
    assert called.over == 1


def test_the_answer_to_head_has_no_body() -> None:
    called = Called("HEAD")
    called.answer(b"hello")
    assert b"".join(called.transport.writes).endswith(b"content-length: 5\r\n\r\n")


@pytest.mark.parametrize("body", [b"hell", b"hello!"])
def test_another_length_than_was_said_is_an_error(body: bytes) -> None:
    with pytest.raises(RuntimeError, match="Content-Length"):
        Called().answer(body)


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\rb"])
def test_a_field_of_two_lines_is_an_error_and_nothing_is_written(value: bytes) -> None:
    called = Called()
    with pytest.raises(RuntimeError, match="more than one line"):
        called.answer(b"hello", headers=[LENGTH, (b"location", value)])
    assert called.transport.writes == []


def test_nobody_who_is_gone_is_written_to() -> None:
    called = Called()
    called.cycle.disconnected = True
    called.answer(b"hello")
    assert called.transport.writes == [] and called.over == 0

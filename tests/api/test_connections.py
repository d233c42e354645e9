"""C10 below HTTP: heads, bodies and answers that are too large or too slow, and too many
connections. A test waits for the server to close; none of them measures how long that took.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.responses import Response

from cede.model import bounds
from cede.server.api import system
from tests.api.conftest import PATIENCE, Server, made
from tests.api.machines import API, Machine

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
Connect = Callable[..., socket.socket]


@pytest.fixture
def connect(server: Server) -> Iterator[Connect]:
    """Opens a bare connection, from any address of the loopback."""
    where = urlsplit(server.url)
    with ExitStack() as opened:

        def one(source: str = "127.0.0.1") -> socket.socket:
            made = socket.create_connection(
                (where.hostname, where.port), PATIENCE, source_address=(source, 0)
            )
            return opened.enter_context(made)

        yield one


def rest_of(connection: socket.socket) -> bytes:
    """What comes until the server closes."""
    heard = b""
    try:
        while piece := connection.recv(65_536):
            heard += piece
    except ConnectionResetError:
        pass
    return heard


def pour(connection: socket.socket, piece: bytes, most: int) -> int:
    """Send until the server will have no more; how much it took."""
    sent = 0
    try:
        while sent < most:
            connection.sendall(piece)
            sent += len(piece)
    except OSError:
        pass
    return sent


HEADS = {
    "one endless field": (HEAD + b"Long: ", b"x" * 16_384),
    "endless fields": (HEAD, b"Name: value\r\n" * 1_000),
    "an endless path": (b"GET /", b"x" * 16_384),
    "an endless name": (HEAD, b"x" * 16_384),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_is_bounded(server: Server, connect: Connect, name: str) -> None:
    begun, piece = HEADS[name]
    connection = connect()
    connection.sendall(begun)
    most = 64 * 2**20
    assert pour(connection, piece, most) < most
    assert rest_of(connection)[:12] in (b"HTTP/1.1 431", b"")  # b"": reset before it was read
    assert server["nobody"].get("/healthz").status_code == 200


def test_a_head_at_its_bound_is_read_and_one_field_more_is_431(connect: Connect) -> None:
    for more, status in ((0, b"200"), (1, b"431")):
        connection = connect()
        fields = b"A: b\r\n" * (bounds.HEADERS_MAX - 2 + more)
        connection.sendall(HEAD + b"Connection: close\r\n" + fields + b"\r\n")
        answer = rest_of(connection)
        assert answer.split(b" ")[1] == status, answer
    assert b"urn:cede:problem:head_too_large" in answer


UNFINISHED = {
    "nothing": b"",
    "half a head": HEAD,
    "half a body": b"POST /api/v1/pools HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
}


@pytest.mark.parametrize("name", UNFINISHED)
def test_a_call_that_does_not_come_is_given_up(
    server: Server, connect: Connect, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("HEAD_TIME", "BODY_TIME"):
        monkeypatch.setattr(bounds, bound, 100)
    connection = connect()
    connection.sendall(UNFINISHED[name])
    rest_of(connection)  # it ends: else this waits until the test's patience is over


def test_an_answer_that_nobody_reads_is_given_up(
    server: Server,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., None],
) -> None:
    monkeypatch.setattr(bounds, "ANSWER_TIME", 100)
    # More than what fits into the buffers between us: then the server waits for its peer.
    monkeypatch.setattr(system, "answer", lambda body: Response(b"x" * (32 * 2**20)))
    connection = connect()
    connection.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
    eventually(lambda: server.connections.count == 1)
    eventually(lambda: server.connections.count == 0)
    assert len(rest_of(connection)) < 32 * 2**20


def test_strangers_do_not_keep_anybody_out(server: Server, connect: Connect) -> None:
    """The server of the tests has room for 125 strangers, 31 of one address."""
    machine = Machine(server)
    opened = [connect(f"127.0.0.{1 + n % 8}") for n in range(400)]
    for each in opened:
        each.sendall(HEAD)
    first = opened[0]
    assert rest_of(first) == b"", "the oldest of an address makes room for the newest"
    assert server["nobody"].get("/healthz").status_code == 200
    assert machine.beat()["orders"] == []
    assert made(server["admin"].get(f"{API}/whoami"))["name"] == "admin"


def test_one_token_does_not_keep_another_out(server: Server, connect: Connect) -> None:
    """It has room for 375 connections with people's tokens."""
    head = "GET /api/v1/whoami HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
    call = f"{head}{server.secrets['viewer']}\r\n\r\n".encode()
    opened: list[Any] = []
    for _ in range(400):
        connection = connect()
        connection.sendall(call)
        assert connection.recv(12) == b"HTTP/1.1 200"
        opened.append(connection)
    assert made(server["red"].get(f"{API}/whoami"))["name"] == "red"
    rest_of(opened[0])

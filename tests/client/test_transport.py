"""HTTP as it comes over the wire: chunks, kept connections, proxies, and servers that hang up."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from cede.client.errors import NotConfigured
from cede.client.transport import Response, Transport, TransportError, _parts

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCede-Index: 7\r\n\r\nhi"


class Wire:
    """Answers each call with the next bytes; None hangs up. It counts connections."""

    def __init__(self) -> None:
        self.answers: list[bytes | None] = []
        self.heads: list[str] = []
        self.connections = 0
        self.hang_up_after: Callable[[], bool] = lambda: False
        self.hung_up = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                made, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._answer, args=(made,), daemon=True).start()

    def _answer(self, made: socket.socket) -> None:
        with made, made.makefile("rb") as file:
            while head := self._head(file):
                self.heads.append(head)
                answer = self.answers.pop(0)
                if answer is None:
                    return
                made.sendall(answer)
                if self.hang_up_after():
                    made.shutdown(socket.SHUT_RDWR)
                    self.hung_up.set()
                    return

    def _head(self, file: object) -> str:
        lines = []
        for line in iter(file.readline, b""):  # type: ignore[attr-defined]
            lines.append(line.decode())
            if line == b"\r\n":
                break
        length = next((int(x.split(":")[1]) for x in lines if x.startswith("Content-Length")), 0)
        file.read(length)  # type: ignore[attr-defined]
        return "".join(lines)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


@pytest.fixture
def transport(wire: Wire) -> Iterator[Transport]:
    transport = Transport(wire.url, {"Authorization": "Bearer x"})
    yield transport
    transport.close()


def ask(transport: Transport, path: str = "/a", **options: object) -> Response:
    usual = {"params": {}, "headers": {}, "connect": 60.0, "read": 60.0}
    with transport.open("GET", path, **(usual | options)) as response:
        response.read()
    return response


def once(server: str) -> Response:
    with closing(Transport(server, {})) as transport:
        return ask(transport)


@pytest.mark.parametrize(
    ("server", "parts"),
    [
        ("http://127.0.0.1:8080", ("http", "127.0.0.1", 8080, "")),
        ("HTTPS://Cede.Example", ("https", "cede.example", None, "")),
        ("http://[::1]:80/a/b/", ("http", "::1", 80, "/a/b")),
        ("http://[fe80::1]", ("http", "fe80::1", None, "")),
        ("http://user:word@host:1/", ("http", "host", 1, "")),
    ],
)
def test_addresses_have_parts(server: str, parts: tuple[object, ...]) -> None:
    assert _parts(server) == parts


@pytest.mark.parametrize(
    "server", ["ftp://host", "http://", "http://host:port", "host", "http://:1"]
)
def test_what_is_no_address_is_refused(server: str) -> None:
    with pytest.raises(NotConfigured):
        _parts(server)


def test_a_connection_is_used_again(wire: Wire, transport: Transport) -> None:
    wire.answers = [OK, OK]
    for _ in range(2):
        found = ask(transport)
    assert (found.status_code, found.content, found.headers["cede-index"]) == (200, b"hi", "7")
    assert wire.connections == 1


def test_a_kept_connection_that_the_server_closed_is_not_used(
    wire: Wire, transport: Transport
) -> None:
    wire.answers = [OK, OK]
    wire.hang_up_after = lambda: len(wire.answers) == 1
    ask(transport)
    assert wire.hung_up.wait(60)
    assert ask(transport).content == b"hi"
    assert wire.connections == 2


def test_chunks_arrive_as_they_are_sent(wire: Wire, transport: Transport) -> None:
    first = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    wire.answers = [
        first + b"5\r\na\r\nb\n\r\n3;x=y\r\ncd\n\r\n2\r\ne\n\r\n0\r\nLast: 1\r\n\r\n",
        OK,
    ]
    with transport.open("GET", "/", params={}, headers={}, connect=60, read=60) as response:
        assert list(response.iter_lines()) == ["a", "b", "cd", "e"]
    assert ask(transport).content == b"hi" and wire.connections == 1


def test_an_answer_without_a_length_ends_with_its_connection(
    wire: Wire, transport: Transport
) -> None:
    wire.answers = [b"HTTP/1.1 200 OK\r\n\r\nall of it", OK]
    wire.hang_up_after = lambda: len(wire.answers) == 1
    assert ask(transport).content == b"all of it"
    assert ask(transport).content == b"hi" and wire.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 3 + b"C",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"A%d: b\r\n" % at for at in range(300)) + b"\r\n",
    ],
)
def test_half_an_answer_is_none(wire: Wire, transport: Transport, answer: bytes | None) -> None:
    wire.answers = [answer]
    wire.hang_up_after = lambda: True
    with pytest.raises(TransportError):
        ask(transport)
    # What was left of it is not read as the answer to the next call.
    wire.answers = [OK]
    assert ask(transport).content == b"hi"


def test_an_error_in_the_callers_own_loop_stays_what_it_is(
    wire: Wire, transport: Transport
) -> None:
    wire.answers = [OK]
    with (
        pytest.raises(BrokenPipeError),
        transport.open("GET", "/", params={}, headers={}, connect=60, read=60) as response,
    ):
        for _ in response.iter_bytes():
            raise BrokenPipeError


def test_a_header_cannot_be_smuggled_in(wire: Wire, transport: Transport) -> None:
    for options in ({"headers": {"A": "b\r\nC: d"}}, {"path": "/a HTTP/1.1\r\nX: y"}):
        with pytest.raises(TransportError, match="line break"):
            ask(transport, **options)
    assert not wire.heads


def test_values_of_a_query_are_written_as_the_api_reads_them(
    wire: Wire, transport: Transport
) -> None:
    wire.answers = [OK]
    ask(transport, params={"follow": True, "name": "a b&c", "after": [3, "x"]})
    query = "follow=true&name=a%20b%26c&after=3&after=x"
    assert wire.heads[0].startswith(f"GET /a?{query} HTTP/1.1\r\n")


def test_closing_wakes_who_waits_for_an_answer(wire: Wire, transport: Transport) -> None:
    asked, failed = threading.Event(), threading.Event()

    def blocked() -> None:
        try:
            ask(transport, read=None)
        except TransportError:
            failed.set()

    wire.hang_up_after = lambda: asked.set() or False  # type: ignore[func-returns-value]
    wire.answers = [b"HTTP/1.1 200 OK\r\n"]
    threading.Thread(target=blocked, daemon=True).start()
    assert asked.wait(60)
    transport.close()
    assert failed.wait(60)
    with pytest.raises(TransportError, match="closed"):
        ask(transport)


def test_a_proxy_of_the_environment_is_asked(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://me:se%20cret@127.0.0.1:{wire.port}")
    monkeypatch.setenv("https_proxy", f"127.0.0.1:{wire.port}")
    monkeypatch.setenv("no_proxy", "inside.example")
    wire.answers = [OK, b"HTTP/1.1 403 Forbidden\r\n\r\n"]
    assert once("http://cede.example/cede").content == b"hi"
    assert wire.heads[0].startswith("GET http://cede.example/cede/a HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic bWU6c2UgY3JldA==" in wire.heads[0]
    with pytest.raises(TransportError, match="the proxy answered 403"):
        once("https://cede.example")
    assert wire.heads[1].startswith("CONNECT cede.example:443 HTTP/1.1\r\n")
    # Neither for this machine's own loopback, nor for a name that is excepted.
    wire.answers = [OK]
    assert once(wire.url).content == b"hi"
    assert wire.heads[2].startswith("GET /a HTTP/1.1")
    with pytest.raises(TransportError):
        once("http://inside.example:1")
    assert len(wire.heads) == 3

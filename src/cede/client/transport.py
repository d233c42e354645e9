"""HTTP/1.1 to one server: connections that are kept and used again, answers whole or as a stream.

It does what cede's API needs and no more: bodies of a known length go out; bodies of a known
length, in chunks, or until the end of the connection come back; no redirects, no cookies, no
compression. It knows nothing of tokens, retries or JSON. It imports `socket` and little else,
because every command of the command line pays for its imports; TLS and proxies are imported where
they are used.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from cede.client.errors import NotConfigured

if TYPE_CHECKING:
    import ssl

# How many connections are kept for later calls.
IDLE_MAX = 20
# A longer line or head is not from a server that this client knows.
LINE_MAX = 1 << 16
HEADERS_MAX = 200
PIECE = 1 << 16
LOOPBACK = ("127.0.0.1", "localhost", "::1")
PORTS = {"http": 80, "https": 443}
PEM = "-----BEGIN"


class TransportError(Exception):
    """No whole answer: no server listens, the connection broke, or the time was over."""


class Untrusted(TransportError):
    """The server's certificate is not trusted here. `fingerprint` is that of the one it was made
    by, if the server shows that, else its own.
    """

    def __init__(self, problem: str, fingerprint: str) -> None:
        super().__init__(problem)
        self.fingerprint = fingerprint


class Response:
    """An answer: its head, and its body once it was read."""

    def __init__(self, status: int, headers: Mapping[str, str], body: Iterator[bytes]) -> None:
        self.status_code = status
        self.headers = headers  # by name in lower case
        self.content = b""
        self._body = body

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300

    def read(self) -> None:
        self.content += b"".join(self._body)

    def iter_bytes(self) -> Iterator[bytes]:
        """The body, piece by piece as it arrives."""
        return self._body

    def iter_lines(self) -> Iterator[str]:
        """The body as lines without their ends."""
        rest = b""
        for piece in self._body:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace").removesuffix("\r")
        if rest:
            yield rest.decode(errors="replace")


class Transport:
    """Connections to one server, for any number of threads: each call uses one of its own."""

    def __init__(self, server: str, headers: Mapping[str, str], ca: str = "") -> None:
        self._scheme, self._host, port, self._prefix = _parts(server)
        self._port = port or PORTS[self._scheme]
        name = f"[{self._host}]" if ":" in self._host else self._host
        self._authority = f"{name}:{port}" if port else name
        self._authority_with_port = f"{name}:{self._port}"
        # A proxy from the environment cannot reach this machine's own loopback.
        self._proxy = None if self._host in LOOPBACK else _proxy_for(self._scheme, self._authority)
        self._head = "".join(
            f"{name}: {value}\r\n" for name, value in {"Host": self._authority, **headers}.items()
        )
        self._tls = trusted(ca) if self._scheme == "https" else None
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []
        self._used: set[_Connection] = set()
        self._closed = False

    def close(self) -> None:
        """End every connection; a thread that waits for an answer gets a `TransportError`."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for each in self._used:
                each.hang_up()
        for each in idle:
            each.close()

    @contextmanager
    def open(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any],
        headers: Mapping[str, str],
        body: bytes | None = None,
        connect: float,
        read: float | None,
    ) -> Iterator[Response]:
        """Send a call; its answer may be read until the `with` ends.

        `connect` and `read` are seconds: until the connection is there, and until more arrives.
        """
        head = self._request(method, path, params, headers, body)
        with _failures_as_ours(), self._named_if_untrusted(connect):
            connection = self._take(connect)
        try:
            with _failures_as_ours():
                connection.wait_at_most(read)
                connection.send(head + (body or b""))
                response = connection.answer()
            yield response
        finally:
            self._give_back(connection)

    def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any],
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> bytes:
        target = self._prefix + path
        if params:
            target += "?" + "&".join(
                f"{name}={quoted(_text(each))}"
                for name, value in params.items()
                for each in (value if isinstance(value, list | tuple) else (value,))
            )
        if self._proxy is not None and self._scheme == "http":
            target = f"http://{self._authority}{target}"
            headers = {**headers, **self._proxy.headers}
        if body is not None:
            headers = {**headers, "Content-Type": "application/json"}
        if body is not None or method == "POST":
            headers = {**headers, "Content-Length": str(len(body or b""))}
        # A line break in a value could smuggle in a header.
        given = "".join((target, *headers.values()))
        if "\r" in given or "\n" in given:
            raise TransportError("a header or the path has a line break in it")
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"{method} {target} HTTP/1.1\r\n{self._head}{lines}\r\n"
        return head.encode("latin-1", errors="replace")

    def _take(self, connect: float) -> _Connection:
        while True:
            with self._lock:
                if self._closed:
                    raise TransportError("the client is closed")
                found = self._idle.pop() if self._idle else None
                if found is not None:
                    self._used.add(found)
            if found is None:
                break
            if found.is_quiet():
                return found
            self._give_back(found, broken=True)
        made = _Connection(self._connected(connect))
        with self._lock:
            self._used.add(made)
        return made

    def _give_back(self, connection: _Connection, *, broken: bool = False) -> None:
        with self._lock:
            self._used.discard(connection)
            reusable = connection.reusable and not broken and not self._closed
            if reusable and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()

    @contextmanager
    def _named_if_untrusted(self, connect: float) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if getattr(error, "verify_message", None) is None:
                raise
            from cede.client.trust import fingerprint

            last = self.certificates(connect)[-1]
            raise Untrusted(str(error.verify_message), fingerprint(last)) from None  # type: ignore[attr-defined]

    def certificates(self, timeout: float) -> list[bytes]:
        """Return the certificates that the server shows, trusted or not: its own first. Nothing is
        sent."""
        from cede.client.trust import chain, unverified

        with _failures_as_ours():
            made = self._connected(timeout, unverified())
        try:
            return chain(made)
        finally:
            made.close()

    def _connected(self, timeout: float, tls: ssl.SSLContext | None = None) -> socket.socket:
        at = (self._host, self._port) if self._proxy is None else self._proxy.address
        # As bytes, because a text goes through a codec that is slow to import.
        made = socket.create_connection((at[0].encode(), at[1]), timeout)  # type: ignore[arg-type]
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if (believed := tls or self._tls) is not None:
                if self._proxy is not None:
                    self._proxy.tunnel(made, self._authority_with_port)
                return believed.wrap_socket(made, server_hostname=self._host)
        except BaseException:
            made.close()
            raise
        return made


class _Connection:
    """One connection, and the answer that is being read from it."""

    def __init__(self, made: socket.socket) -> None:
        self._socket = made
        self._file: BinaryIO = made.makefile("rb")
        self.reusable = False

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def hang_up(self) -> None:
        """Wake the thread that uses it, which closes it."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is not connected any more

    def is_quiet(self) -> bool:
        """Whether the server neither closed the connection nor sent anything unasked."""
        poll = select.poll()  # select itself knows no descriptor above 1023
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def wait_at_most(self, seconds: float | None) -> None:
        self._socket.settimeout(seconds)

    def send(self, data: bytes) -> None:
        self.reusable = False
        self._socket.sendall(data)

    def answer(self) -> Response:
        while True:
            version, status, headers = _read_head(self._file)
            if status >= 200:
                break  # an earlier one only says that it continues
        stays = headers.get("connection", "").lower() != "close" and version == "HTTP/1.1"
        if status in (204, 304):
            body: Iterator[bytes] = iter(())
            self.reusable = stays
        elif headers.get("transfer-encoding", "").lower() == "chunked":
            body = self._chunks(stays)
        elif "content-length" in headers:
            body = self._counted(int(headers["content-length"]), stays)
        else:
            body = self._until_end()
        return Response(status, headers, _guarded(body))

    def _counted(self, length: int, stays: bool) -> Iterator[bytes]:
        while length:
            piece = self._piece(length)
            length -= len(piece)
            yield piece
        self.reusable = stays

    def _chunks(self, stays: bool) -> Iterator[bytes]:
        while length := int(_line(self._file).partition(b";")[0], 16):
            while length:
                piece = self._piece(length)
                length -= len(piece)
                yield piece
            if _line(self._file):
                raise ValueError("a chunk is longer than it says")
        while _line(self._file):
            pass  # trailing headers: none is used
        self.reusable = stays

    def _until_end(self) -> Iterator[bytes]:
        while piece := self._file.read1(PIECE):  # type: ignore[attr-defined]
            yield piece

    def _piece(self, most: int) -> bytes:
        piece: bytes = self._file.read1(min(most, PIECE))  # type: ignore[attr-defined]
        if not piece:
            raise ConnectionError("the connection ended in the middle of an answer")
        return piece


@contextmanager
def _failures_as_ours() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TransportError(_in_words(error)) from None
    except ValueError as error:
        raise TransportError(f"not an answer in HTTP: {error}") from None


def _in_words(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there"
    if isinstance(error, socket.gaierror):
        return "no machine of that name is known here"
    if getattr(error, "reason", "") == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS: write http:// if that is meant"
    return str(error)


def _guarded(body: Iterator[bytes]) -> Iterator[bytes]:
    # Around the reading alone: errors in the caller's own loop are the caller's.
    with _failures_as_ours():
        yield from body


def _read_head(file: BinaryIO) -> tuple[str, int, dict[str, str]]:
    first = _line(file).decode("latin-1").split(" ", 2)
    if len(first) < 2 or not first[0].startswith("HTTP/1.") or not first[1].isdecimal():
        raise ValueError("the first line is no status")
    headers: dict[str, str] = {}
    while line := _line(file).decode("latin-1"):
        if len(headers) >= HEADERS_MAX:
            raise ValueError(f"more than {HEADERS_MAX} headers")
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return first[0], int(first[1]), headers


def _line(file: BinaryIO) -> bytes:
    line = file.readline(LINE_MAX)
    if not line:
        raise ConnectionError("the server hung up without an answer")
    if not line.endswith(b"\n"):
        raise ValueError("a line has no end")
    return line.rstrip(b"\r\n")


def quoted(text: str) -> str:
    """Quote a text for use in an address."""
    if text.isascii() and text.replace("-", "").replace("_", "").isalnum():
        return text  # most texts are such, and the next line is slow
    from urllib.parse import quote

    return quote(text, safe="")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def trusted(ca: str = "") -> ssl.SSLContext:
    """Return a context that trusts the certificates of a file or a text, else those in
    `SSL_CERT_FILE`, else the system's; for loopback too.
    """
    import ssl

    if not ca:
        return ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE"))
    try:
        if not ca.startswith(PEM):
            return ssl.create_default_context(cafile=ca)
        made = ssl.create_default_context(cadata=ca)
    except OSError as error:
        said = error.strerror or str(error)
        raise NotConfigured(f"cannot read certificates from {ca:.200}: {said}") from None
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it may be the server's own
    return made


def _parts(address: str) -> tuple[str, str, int | None, str]:
    """Split an address into scheme, host, port and path. `urllib.parse` is slow to import."""
    scheme, _, rest = address.partition("://")
    authority, slash, path = rest.partition("/")
    host, colon, port = authority.rpartition("@")[2].rpartition(":")
    if not colon or port.endswith("]"):
        host, port = authority.rpartition("@")[2], ""
    host = host.removeprefix("[").removesuffix("]")
    if scheme.lower() not in PORTS or not host or not (port.isdecimal() or not port):
        raise NotConfigured(f"{address!r} is not an address such as http://127.0.0.1:8080")
    name = host.lower() if host.isascii() else host.encode("idna").decode()
    return scheme.lower(), name, int(port) if port else None, (slash + path).rstrip("/")


class _Proxy:
    """A proxy named by the environment, spoken to by plain HTTP."""

    def __init__(self, address: str) -> None:
        found = address if "://" in address else f"http://{address}"
        scheme, host, port, _ = _parts(found)
        if scheme != "http":
            raise NotConfigured(f"the proxy at {host} is not one by plain HTTP")
        self.address = (host, port or PORTS["http"])
        self.headers: dict[str, str] = {}
        who, given, _ = found.partition("://")[2].partition("/")[0].rpartition("@")
        if given:
            from base64 import b64encode
            from urllib.parse import unquote_to_bytes

            self.headers["Proxy-Authorization"] = (
                f"Basic {b64encode(unquote_to_bytes(who)).decode()}"
            )

    def tunnel(self, made: socket.socket, authority: str) -> None:
        """Make the proxy forward whatever is sent from here on."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        head = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{lines}\r\n"
        made.sendall(head.encode())
        # Unbuffered: what follows the answer is TLS, and not ours to read.
        with made.makefile("rb", buffering=0) as file:
            _, status, _ = _read_head(file)  # type: ignore[arg-type]
        if status != 200:
            raise ConnectionError(f"the proxy answered {status}")


def _proxy_for(scheme: str, authority: str) -> _Proxy | None:
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    # Slow to import, and it knows the rules of no_proxy.
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    address = proxies.get(scheme) or proxies.get("all")
    return _Proxy(address) if address and not proxy_bypass(authority) else None

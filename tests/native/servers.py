"""A server that keeps the bytes of every call, and answers as it is told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

ID = "01a1f5da-589f-7000-b51d-cacdfe493387"
SHORT_ID = "cacdfe49"
MADE = b'{"id":"' + ID.encode() + b'","labels":{"id":"no","a":["}"]},"status":"queued"}'

# Writes an answer, or a part of one; the connection ends when it returns.
Answer = Callable[[socket.socket, bytes], None]


def says(body: bytes = MADE, status: str = "201 Created", *headers: str) -> Answer:
    lines = [f"HTTP/1.1 {status}", *(headers or (f"content-length: {len(body)}",)), "", ""]
    return lambda to, _: to.sendall("\r\n".join(lines).encode() + body)


def hangs_up(after: bytes = b"") -> Answer:
    return lambda to, _: to.sendall(after)


class Listening:
    """Keeps calls; gives each the next of some answers, and the last of them from then on."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.calls: list[bytes] = []
        self.answers: list[Answer] = [says()]
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def reset(self, *answers: Answer) -> None:
        self.calls, self.answers = [], list(answers) or [says()]

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                taken, _ = self._listener.accept()
            except OSError:
                return
            with taken, suppress(OSError):
                # Python keeps a connection for its next call, which here is always a new one.
                call = whole_call(taken)
                self.calls.append(call)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                answer(taken, call)


def whole_call(taken: socket.socket) -> bytes:
    """The bytes of one call, or of one answer."""
    call = b""
    while b"\r\n\r\n" not in call:
        call += _more(taken)
    head, _, body = call.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += _more(taken)
    return head + b"\r\n\r\n" + body


def _more(taken: socket.socket) -> bytes:
    piece = taken.recv(1 << 16)
    if not piece:
        raise ConnectionError
    return piece


@contextmanager
def listening(host: str = "127.0.0.1") -> Iterator[Listening]:
    made = Listening(host)
    try:
        yield made
    finally:
        made.close()


def key_of(call: bytes) -> bytes:
    return call.partition(b"Idempotency-Key: ")[2].partition(b"\r\n")[0]


def without_key(call: bytes) -> bytes:
    """A call but for its key, which no two share."""
    key = key_of(call)
    assert len(key) == 32, call
    return call.replace(key, b"KEY", 1)


def authority_and_token(call: bytes) -> Sequence[bytes]:
    return call.split(b"\r\n")[1:3]

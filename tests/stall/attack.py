"""A process that does what somebody does who wants to stall a server: each kind on threads of its
own, from many tokens and many addresses, until its standard input ends. Answers are counted.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from itertools import cycle
from typing import Any

API = "/api/v1"
PATIENCE = 60
UNKNOWN = b'{"resources":{"gpu":1}' + b',"aaaaaaaaaaaa":1' * 480_000 + b"}"
FEW_UNKNOWN = b'{"resources":{"gpu":1}' + b',"aaaaaaaaaaaa":1' * 15_000 + b"}"
BULK = b'{"requests":[' + b",".join([b'{"resources":{"gpu":1},"x":1}'] * 500) + b"]}"


@dataclass
class Attack:
    """`addresses` are where connections come from, `secrets` the tokens of those who attack."""

    port: int
    secrets: Sequence[str]
    addresses: Sequence[str]
    answers: Counter[str] = field(default_factory=Counter)
    stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def begin(self) -> None:
        kinds: list[tuple[str, int, Callable[[int], None]]] = [
            ("bodies", 10, lambda n: self._call(n, "POST", "/requests", UNKNOWN)),
            ("fields", 4, lambda n: self._call(n, "POST", "/requests", FEW_UNKNOWN)),
            ("bulk", 4, lambda n: self._call(n, "POST", "/requests/bulk", BULK)),
            ("shares", 8, lambda n: self._call(n, "GET", "/pools/gpus/shares")),
            ("lists", 8, lambda n: self._call(n, "GET", "/requests?limit=500&explain=true")),
            ("guesses", 8, lambda n: self._call(n, "GET", "/pools", secret="cede_" + "0" * 49)),
            ("heads", 4, self._head),
            ("half-open", 12, self._half_open),
        ]
        for kind, count, act in kinds:
            for number in range(count):
                each = threading.Thread(target=self._again, args=(kind, number, act), daemon=True)
                self._threads.append(each)
                each.start()

    def end(self) -> None:
        self.stop.set()
        for each in self._threads:
            each.join(2 * PATIENCE)

    def _again(self, kind: str, number: int, act: Callable[[int], None]) -> None:
        mine = cycle(range(number, number + len(self.addresses)))
        # Once at least, however late a busy machine lets this thread begin.
        done = False
        while not (done and self.stop.is_set()):
            done = True
            try:
                act(next(mine))
            except (OSError, HTTPException) as error:
                self.answers[f"{kind} {type(error).__name__}"] += 1
                self.stop.wait(0.05)  # whoever is refused at once would only measure its own loop

    def _source(self, number: int) -> tuple[str, int]:
        return self.addresses[number % len(self.addresses)], 0

    def _call(
        self, number: int, method: str, path: str, body: bytes | None = None, secret: str = ""
    ) -> None:
        secret = secret or self.secrets[number % len(self.secrets)]
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
        connection = HTTPConnection(
            "127.0.0.1", self.port, timeout=PATIENCE, source_address=self._source(number)
        )
        with contextlib.closing(connection):
            connection.request(method, API + path, body, headers)
            answer = connection.getresponse()
            answer.read()
            self.answers[f"{path.partition('?')[0]} {answer.status}"] += 1
            if answer.status in (429, 503):
                self.stop.wait(0.05)

    @contextlib.contextmanager
    def _bare(self, number: int) -> Iterator[socket.socket]:
        with socket.create_connection(
            ("127.0.0.1", self.port), PATIENCE, source_address=self._source(number)
        ) as made:
            yield made

    def _head(self, number: int) -> None:
        """A head without end, as fast as it is taken."""
        with self._bare(number) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
            for _ in range(3_000):
                connection.sendall(b"Name: value\r\n" * 5_000)
            self.answers["a head of 195 MB was taken"] += 1

    def _half_open(self, number: int) -> None:
        """A hundred connections on which the rest of a head never comes."""
        with contextlib.ExitStack() as opened:
            held: list[Any] = []
            for each in range(100):
                made = opened.enter_context(self._bare(number + each))
                made.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
                held.append(made)
            self.answers["half-open connections"] += len(held)
            self.stop.wait(5)


def main() -> None:
    attack = Attack(**json.loads(sys.argv[1]))
    attack.begin()
    sys.stdin.read()
    attack.end()
    json.dump(attack.answers, sys.stdout)


if __name__ == "__main__":
    main()

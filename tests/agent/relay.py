"""A network between one agent and its server that can lose either direction.

What is lost is not refused: connections stay open, and nothing comes through, as behind a dropped
route. TCP sends again, so what was on its way arrives when the network heals, however late.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

UP, DOWN = "up", "down"  # to the server, and from it


class Relay:
    def __init__(self, port: int) -> None:
        self._to = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._open = {UP: threading.Event(), DOWN: threading.Event()}
        self._sockets: list[socket.socket] = []
        self.heal()
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, *directions: str) -> None:
        for each in directions:
            self._open[each].clear()

    def heal(self) -> None:
        for each in self._open.values():
            each.set()

    def close(self) -> None:
        self.heal()
        for each in (self._listener, *self._sockets):
            # A thread that waits in it hears of the first; the second alone would leave it there.
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(self._to)
                except OSError:  # nobody is there: the caller hears that as a lost connection
                    near.close()
                    continue
                self._sockets += [near, far]
                for ends in ((near, far, UP), (far, near, DOWN)):
                    threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        with suppress(OSError):  # either end is gone
            while True:
                data = source.recv(1 << 16)
                self._open[direction].wait()
                if not data:
                    sink.shutdown(socket.SHUT_WR)  # the end is lost and found like the rest
                    return
                sink.sendall(data)

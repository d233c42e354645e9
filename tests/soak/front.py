"""One address in front of several servers: connections go to the one that is the writer now."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Front:
    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.target = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, port: int) -> None:
        """From now on there; what is open to somewhere else is cut, as its server is gone."""
        with self._lock:
            self.target = port
            stale, self._open = self._open, set()
        for each in stale:
            _cut(each)

    def close(self) -> None:
        _cut(self._listener)
        self._listener.close()
        self.lead_to(0)

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near:
            try:
                far = socket.create_connection(("127.0.0.1", self.target), timeout=2)
            except OSError:
                return  # nobody is there: the caller hears that as a lost connection
            far.settimeout(None)
            with far:
                with self._lock:
                    self._open |= {near, far}
                back = threading.Thread(target=_pump, args=(far, near), daemon=True)
                back.start()
                _pump(near, far)
                back.join()
                with self._lock:
                    self._open -= {near, far}


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    _cut(source)
    _cut(sink)


def _cut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)

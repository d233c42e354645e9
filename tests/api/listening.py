"""Ports with uvicorn behind them, which serve one app after the other.

Stopping uvicorn takes a fifth of a second, in which it does nothing but sleep: longer than most
tests of an app take. So a port that is free again is given to the next app.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from cede.server.connections import Connections, protocol_for

PATIENCE = 60.0  # seconds that anything may take before a test gives up
CONNECTIONS_MAX = 1_000


class Port:
    """One port. What calls it while it has no app is cut off."""

    def __init__(self) -> None:
        self.app: ASGIApp | None = None
        self.calls = 0  # that are being answered; only the server's thread writes it
        self._protocol: Any = protocol_for(Connections(CONNECTIONS_MAX))
        options = {"log_level": "warning", "lifespan": "off", "interface": "asgi3"}
        config = uvicorn.Config(self._call, "127.0.0.1", 0, http=self._protocol, **options)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the server did not start"
            time.sleep(0.005)
        self.number = int(self._server.servers[0].sockets[0].getsockname()[1])

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self.app is not None, "no app is at this port"
        self.calls += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.calls -= 1

    def serve(self, app: ASGIApp) -> None:
        """Give the port to an app. What callers of the one before left open is not counted."""
        self._protocol.registry = Connections(CONNECTIONS_MAX)
        self.app = app

    @property
    def connections(self) -> Connections:
        """Those that were opened to its present app."""
        found: Connections = self._protocol.registry
        return found

    def release(self) -> None:
        """Wait until what its app was asked is answered."""
        deadline = time.monotonic() + PATIENCE
        while self.calls:
            assert time.monotonic() < deadline, f"{self.calls} calls are not answered"
            time.sleep(0.005)
        self.app = None

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the server did not stop"


_free: list[Port] = []


@contextmanager
def at_a_port(app: ASGIApp) -> Iterator[Port]:
    """A port at which this app is served."""
    port = _free.pop() if _free else Port()
    port.serve(app)
    try:
        yield port
    finally:
        port.release()
        _free.append(port)


def stop_all() -> None:
    while _free:
        _free.pop().stop()

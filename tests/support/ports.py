"""Ports that are ours before a server has them, and while it is away."""

from __future__ import annotations

import socket


def hold(port: int = 0) -> socket.socket:
    """A port of the loopback address, a free one unless given, until the socket is closed.

    Whoever connects to it is refused. It is given to nobody else, as it else could be to any
    connection that goes out; but a server that asks for it by its number gets it.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", port))
    return held


def number_of(held: socket.socket) -> int:
    return int(held.getsockname()[1])

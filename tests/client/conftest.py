"""Real servers for these tests."""

from tests.support.servers import client, own_server, server, shared_server

__all__ = ["client", "own_server", "server", "shared_server"]

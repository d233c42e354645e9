"""A client for the configured server, as every command uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cede.client.client import Client

TIMEOUT = 10.0


def connect(
    server: str | None = None,
    token_file: str | None = None,
    *,
    timeout: float = TIMEOUT,
    attempts: int | None = None,
) -> Client:
    """Make the client that options, the environment or a file configure."""
    from cede.client.client import Client
    from cede.client.config import read_token, resolve
    from cede.client.http import ATTEMPTS, Http

    token = read_token(token_file) if token_file else None
    connection = resolve(server, token)
    return Client(http=Http(connection, timeout=timeout, attempts=attempts or ATTEMPTS))

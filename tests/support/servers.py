"""A real server: one for all tests that leave it running, cleaned before each; or one of a test's
own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cede import Client
from tests.client.serving import Serving, clean


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    serving = Serving(tmp_path_factory.mktemp("serving") / "data")
    yield serving
    serving.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Serving]:
    """A server that a test may kill."""
    serving = Serving(tmp_path / "data")
    yield serving
    serving.stop()


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Serving]:
    """A server in its first state: the test's own if it asks for one."""
    if "own_server" in request.fixturenames:
        yield request.getfixturevalue("own_server")
        return
    found: Serving = request.getfixturevalue("shared_server")
    with found.client() as client:
        clean(client)
    yield found
    found.end_commands()


@pytest.fixture
def client(server: Serving) -> Iterator[Client]:
    with server.client() as client:
        yield client

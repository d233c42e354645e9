"""One cede server and one ZenML server for all tests that leave them running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.serving import Serving, clean
from tests.zenml.world import ZenServer, why_not


@pytest.fixture(scope="session")
def zenml_is_here() -> None:
    """Skips what needs ZenML where it is not, and says why."""
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def cede_server(zenml_is_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    serving = Serving(tmp_path_factory.mktemp("cede") / "data")
    yield serving
    serving.stop()


@pytest.fixture(scope="session")
def zen_server(
    cede_server: Serving, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZenServer]:
    server = ZenServer(tmp_path_factory.mktemp("zenml"), cede_server.url, cede_server.token)
    try:
        server.prepare("red", "blue", "inline")
        yield server
    finally:
        server.stop()


@pytest.fixture
def cede(cede_server: Serving) -> Serving:
    """cede as its first start left it."""
    with cede_server.client() as client:
        clean(client)
    return cede_server


@pytest.fixture
def zen(cede: Serving, zen_server: ZenServer) -> ZenServer:
    return zen_server

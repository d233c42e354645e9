"""One server for all pages and examples; each finds it as the first start left it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.serving import Serving, clean


@pytest.fixture(scope="session")
def docs_servers() -> Iterator[list[Serving]]:
    """The one in use, once there is one."""
    found: list[Serving] = []
    yield found
    for each in found:
        each.stop()


@pytest.fixture
def server(docs_servers: list[Serving], tmp_path_factory: pytest.TempPathFactory) -> Serving:
    if docs_servers and had_guests(docs_servers[0]):
        docs_servers.pop().stop()
    if not docs_servers:
        # As `make up` starts it; tests may be root.
        data = tmp_path_factory.mktemp("serving") / "data"
        docs_servers.append(Serving(data, options=("--allow-root-jobs",)))
    with docs_servers[0].client() as client:
        clean(client)
    return docs_servers[0]


def had_guests(serving: Serving) -> bool:
    """Machines have joined that ended with their page's shell; it would wait for them long."""
    with serving.client() as client:
        return any(each["pool"] != "local" for each in client.nodes.list())

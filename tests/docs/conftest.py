"""One server for all pages and examples; each finds it as the first start left it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.serving import Serving, clean


@pytest.fixture(scope="session")
def docs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    # As `make up` starts it; tests may be root.
    options = ("--heartbeat", "1", "--allow-root-jobs")
    serving = Serving(tmp_path_factory.mktemp("serving") / "data", options=options)
    yield serving
    serving.stop()


@pytest.fixture
def server(docs_server: Serving) -> Serving:
    with docs_server.client() as client:
        clean(client)
    return docs_server

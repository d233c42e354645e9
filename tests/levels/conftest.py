"""Two real servers for the whole folder, one on each database, and a face to look at them from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from tests.client.serving import Serving
from tests.levels.level import LEVELS, Level
from tests.support import postgres

DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


@pytest.fixture(scope="session", params=DATABASES)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    """A server that every test of this folder may use and none may stop."""
    with ExitStack() as stack:
        yield _serving(request, stack, tmp_path_factory.mktemp("levels"))


@pytest.fixture(params=DATABASES)
def own_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Serving]:
    """A server that a test may kill."""
    with ExitStack() as stack:
        yield _serving(request, stack, tmp_path)


def _serving(request: pytest.FixtureRequest, stack: ExitStack, folder: Path) -> Serving:
    database = None
    if request.param == "postgresql":
        server = make_url(request.getfixturevalue("postgres_url"))
        url = stack.enter_context(postgres.fresh_database(server))
        database = url.render_as_string(hide_password=False)
    serving = Serving(folder / "data", database)
    stack.callback(serving.stop)
    return serving


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, server: Serving) -> Iterator[Level]:
    """One of the three faces, with names of its own."""
    found = LEVELS[request.param](server)
    yield found
    found.close()

"""Fixtures that every test may use: a real PostgreSQL, and a fresh database of either kind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from sqlalchemy.engine import make_url

from tests.support import postgres

# Under CI hypothesis takes a repeatable profile of its own. Elsewhere only the deadline goes: on a
# busy machine it fails tests for the machine's slowness.
IN_CI = os.environ.get("CI", "").lower() in ("1", "true")
if not IN_CI:
    settings.register_profile("cede", deadline=None)
    settings.load_profile("cede")

NO_POSTGRES = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a PostgreSQL server that lives as long as the test run."""
    try:
        with postgres.running_server(postgres.find_binaries()) as url:
            yield url.render_as_string(hide_password=False)
    except postgres.Unavailable as reason:
        if IN_CI:
            pytest.fail(f"PostgreSQL is required here: {reason}")
        request.config.stash[NO_POSTGRES] = str(reason)
        pytest.skip(f"no PostgreSQL: {reason}")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh empty database; a test that takes it runs once on each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'cede.db'}"
        return
    server = make_url(request.getfixturevalue("postgres_url"))
    with postgres.fresh_database(server) as url:
        yield url.render_as_string(hide_password=False)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Half of the store's tests did not run: that must not pass for a green run."""
    reason = config.stash.get(NO_POSTGRES, None)
    if reason is not None:
        terminalreporter.section("POSTGRESQL WAS NOT TESTED", red=True, bold=True)
        terminalreporter.line(reason, red=True)

"""The code of landed versions, and a cluster that starts with one of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.cluster import Cluster
from tests.agent.crew import HEARTBEAT, SETTINGS
from tests.support.sources import NoHistory, Source, of_commit
from tests.upgrade.versions import VERSIONS, Version, name

NOT_TESTED = pytest.StashKey[str]()


@pytest.fixture(scope="session", params=VERSIONS, ids=name)
def version(request: pytest.FixtureRequest) -> Version:
    found: Version = request.param
    return found


@pytest.fixture(scope="session")
def old(
    version: Version, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Source:
    """The version's own tree, which is really what a Python imports."""
    try:
        found = of_commit(version.commit, tmp_path_factory.mktemp("version"))
    except NoHistory as reason:
        request.config.stash[NOT_TESTED] = f"{name(version)} is not in this copy: {reason}"
        pytest.skip(f"no upgrade from {name(version)}: {reason}")
    assert found.imported() == found.folder
    said = (found.folder / "cede" / "store" / "migrate.py").read_text()
    assert re.search(r'^HEAD = "(\d+)"$', said, re.MULTILINE)[1] == version.revision
    said = (found.folder / "cede" / "agent" / "wire.py").read_text()
    assert re.search(r"^PROTOCOL = (\d+)$", said, re.MULTILINE)[1] == str(version.protocol)
    return found


@pytest.fixture
def cluster(old: Source, tmp_path: Path) -> Iterator[Cluster]:
    """A server of the old version; agents that are started here are of it, too."""
    made = Cluster(tmp_path, HEARTBEAT, old, settings=SETTINGS)
    try:
        yield made
    finally:
        made.stop()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """A run without upgrades must not pass for a whole one."""
    reason = config.stash.get(NOT_TESTED, None)
    if reason is not None:
        terminalreporter.section("UPGRADES WERE NOT TESTED", red=True, bold=True)
        terminalreporter.line(reason, red=True)

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.cluster import Cluster


@pytest.fixture(scope="session")
def one_for_all() -> Iterator[Cluster]:
    """One server with one agent."""
    # Not below pytest's own directory, where other accounts' work could not come by.
    home = Path(tempfile.mkdtemp(prefix="cede-agents-"))
    made = Cluster(home)
    try:
        made.agent()
        yield made
    finally:
        made.stop()
        # A keeper whose agent was killed may still find out that there is nothing to keep.
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def shared(one_for_all: Cluster) -> Iterator[Cluster]:
    """What all tests have in common, as each finds it; what one adds is gone when it is over."""
    with one_for_all.borrowed():
        yield one_for_all

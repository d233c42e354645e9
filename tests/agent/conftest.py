from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.cluster import Cluster


@pytest.fixture(scope="session")
def shared() -> Iterator[Cluster]:
    """One server with one agent, for tests that leave both alive."""
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

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.world import World, world


@pytest.fixture(scope="session")
def standing(slurm: Cluster) -> Iterator[World]:
    """One server and one bridge for all stories."""
    home = Path(tempfile.mkdtemp(prefix="cede-bridge-"))
    try:
        with world(home, slurm) as made:
            made.bridge.start()
            yield made
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def bridged(standing: World) -> Iterator[World]:
    """They have no pool before and after each story, and nothing runs."""
    standing.clear()
    yield standing
    standing.clear()
    standing.slurm.settle()

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, cluster, missing
from tests.slurm.world import World, world


@pytest.fixture(scope="session")
def slurm() -> Iterator[Cluster]:
    """One Slurm for all stories."""
    if why := missing():
        pytest.skip(f"no Slurm here: {why}")
    # Not below pytest's own directory, where other accounts' work could not come by.
    home = Path(tempfile.mkdtemp(prefix="cede-slurm-"))
    try:
        with cluster(home) as made:
            yield made
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def bridged(slurm: Cluster) -> Iterator[World]:
    """A server and a bridge of their own; no pool yet."""
    home = Path(tempfile.mkdtemp(prefix="cede-bridge-"))
    try:
        with world(home, slurm) as made:
            yield made
        slurm.settle()
    finally:
        shutil.rmtree(home, ignore_errors=True)

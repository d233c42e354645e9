from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.cluster import POOL, Cluster
from tests.agent.stepping import Work
from tests.launch.conftest import containment, each_means, make, means_here

__all__ = ["containment", "each_means", "make", "means_here"]

LEASE = 3.0  # seconds for which a node may be silent in tests of that


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
        # A supervisor whose agent was killed may still find out that there is nothing to keep.
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def shared(one_for_all: Cluster) -> Iterator[Cluster]:
    """What all tests have in common, as each finds it; what one adds is gone when it is over."""
    with one_for_all.borrowed():
        yield one_for_all


@pytest.fixture
def work(shared: Cluster, tmp_path: Path) -> Work:
    shared.allow_blue()
    return Work(shared, tmp_path)


@pytest.fixture
def short(shared: Cluster) -> Iterator[None]:
    """Nodes may be silent for seconds only."""
    before = shared.client.pools.get(POOL)["settings"]["node_lease"]
    shared.client.pools.update(POOL, settings={"node_lease": LEASE})
    yield
    shared.client.pools.update(POOL, settings={"node_lease": before})

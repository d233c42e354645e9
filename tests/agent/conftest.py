from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agent.cluster import Cluster


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One server with one agent, for tests that leave both alive."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    cluster.agent()
    cluster.policy(2)
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server, and no agent yet."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.stop()

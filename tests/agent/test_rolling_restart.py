"""A rolling restart: the server and every agent in turn, with 40 running tasks and 10 stops under
way. Nothing stops that was not asked to, and each stop ends as it would have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.cluster import Cluster
from tests.agent.crew import HEARTBEAT, SETTINGS, Crew, crews, restart
from tests.support.sources import HERE

pytestmark = [pytest.mark.system, pytest.mark.slow]

# Stayers and victims of each agent.
SHARES = {"n1": (14, 4), "n2": (13, 3), "n3": (13, 3)}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, HEARTBEAT, settings=SETTINGS)
    try:
        yield made
    finally:
        made.stop()


def test_server_and_agents_are_restarted_in_the_middle_of_stops(
    cluster: Cluster, tmp_path: Path
) -> None:
    made = crews(cluster, SHARES, tmp_path / "work", HERE)
    for crew in made:
        crew.ask()
    assert sum(len(crew.stayers) for crew in made) == 40
    assert sum(len(crew.victims) for crew in made) == 10

    def unharmed() -> None:
        for crew in made:
            crew.takes_work()
            crew.check()

    assert cluster.server.end() == 0
    cluster.server.start()
    unharmed()
    for crew in made:
        restart(cluster, crew.agent)
        unharmed()
    cluster.server.kill()
    cluster.server.start()
    unharmed()
    # An agent that comes back before its server does.
    first, second, third = made
    cluster.server.kill()
    assert first.agent.end() == 0
    first.agent.start()
    cluster.server.start()
    unharmed()
    save_amid_restarts(cluster, first, second)
    third.save()
    for crew in made:
        crew.suspended()
        crew.check(victims="gone")
    for crew in made:
        crew.resume()
    for crew in made:
        crew.check(victims="gone")
        crew.finish()


def save_amid_restarts(cluster: Cluster, first: Crew, second: Crew) -> None:
    """The first crew saves while its agent is away, the second while the server is."""
    assert first.agent.end() == 0
    first.save()
    first.agent.start()
    assert cluster.server.end() == 0
    second.save()
    cluster.server.start()

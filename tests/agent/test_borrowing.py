"""A test that fails leaves nothing to the next one, nor to its own second try."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.agent.cluster import TEAM, Cluster

pytestmark = pytest.mark.system


class Failed(Exception):
    """What a test does that fails."""


def here(cluster: Cluster) -> tuple[Any, ...]:
    return set(cluster.nodes()), cluster.live(), cluster.pools(), list(cluster.agents)


def wreck(cluster: Cluster) -> None:
    """Nothing is as it was: work runs and waits, nodes are gone, stopped, draining or new."""
    client, on = cluster.client, {"node_labels": {"host": "n1"}}
    client.pools.create("wreck", nodes={"pool": "wreck"}, settings={"grace": 1})
    dead = cluster.start_agent("dead", 1, "--allow-root-jobs", "--label", "pool=wreck")
    cluster.until_ready("dead")
    client.policies.attach("wreck", TEAM, component_type="team", priority=0, reserved={"gpu": 1})
    left = cluster.submit("sleep", "1000", pool="wreck")
    runs, _ = (cluster.submit("sleep", "1000", gpus=2, **on) for _ in range(2))
    for each in (left, runs):
        cluster.until(lambda each=each: cluster.events(each, "started"), about=each)
    dead.kill()
    client.nodes.drain("n1")
    cluster.agents[0].signal(signal.SIGSTOP)
    cluster.server.kill()


def test_what_is_left_behind_is_gone_and_what_was_there_is_in_order(shared: Cluster) -> None:
    before = here(shared)
    with pytest.raises(Failed), shared.borrowed():
        wreck(shared)
        raise Failed
    assert here(shared) == before
    assert shared.ended(shared.submit("true"))["status"] == "released"

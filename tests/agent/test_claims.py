"""A sensitive claim on an occupied node, with a real server, a real agent and real work."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.agent.cluster import BLUE, GRACE, TEAM, Cluster, read_when_there
from tests.agent.test_stopping import AMPLE, VICTIM

pytestmark = pytest.mark.system


POOL = "claims"


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    """One node of two GPUs in a pool of its own."""
    client = shared.client
    client.pools.create(POOL, nodes={"pool": POOL}, settings={"grace": GRACE})
    shared.start_agent("kept", 2, "--allow-root-jobs", "--label", f"pool={POOL}")
    shared.until_ready("kept")
    for team, sensitive in ((TEAM, False), (BLUE, True)):
        own = {"component_type": "team", "priority": 10, "allow_sensitive": sensitive}
        client.policies.attach(POOL, team, **own)
    return shared


def test_work_is_saved_and_leaves_and_the_claimants_starts(
    cluster: Cluster, tmp_path: Path
) -> None:
    client, on = cluster.client, {"pool": POOL, "gpus": 2}
    argv = (sys.executable, str(VICTIM), "saves", str(tmp_path))
    victim = cluster.submit(*argv, checkpoint="auto", checkpoint_timeout=AMPLE, **on)
    cluster.until(lambda: cluster.events(victim, "started"), about=victim)
    read_when_there(tmp_path / "notes")

    me = client.whoami()["name"]
    assert client.nodes.claim(["kept"], me)["stopping"] == 1
    mine = cluster.submit("sh", "-c", "exit 0", component=BLUE, sensitive=True, **on)
    assert cluster.ended(mine)["status"] == "released"
    assert client.nodes.get("kept")["claimed_by"] == me

    stopped = cluster.get(victim)
    assert stopped["status"] == "suspended", "nobody else is put on a claimed node"
    assert stopped["saved"] and stopped["preempted_count"] == 1
    client.nodes.unclaim(["kept"])
    ended = cluster.ended(victim)
    assert (ended["status"], ended["attempt"]) == ("released", 2)
    notes = [line.partition(" ")[2] for line in read_when_there(tmp_path / "notes").splitlines()]
    assert notes[-1] == "from 42", "it went on from what it had saved"

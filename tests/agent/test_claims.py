"""A sensitive claim on an occupied node, with a real server, a real agent and real work."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.agent.cluster import BLUE, POOL, Cluster, read_when_there
from tests.agent.test_parting import AMPLE, PROGRAMS

pytestmark = pytest.mark.system


def test_work_is_saved_and_leaves_and_the_claimants_starts(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.agent("n1", 2)
    client = cluster.client
    client.policies.attach(POOL, BLUE, component_type="team", priority=20, allow_sensitive=True)
    victim = cluster.submit(
        *(sys.executable, str(PROGRAMS / "victim.py"), "saves", str(tmp_path)),
        gpus=2,
        checkpoint="auto",
        checkpoint_timeout=AMPLE,
    )
    cluster.until(lambda: cluster.events(victim, "started"), about=victim)
    read_when_there(tmp_path / "notes")

    me = client.whoami()["name"]
    assert client.nodes.claim(["n1"], me)["stopping"] == 1
    mine = cluster.submit("sh", "-c", "exit 0", gpus=2, component=BLUE, sensitive=True)
    assert cluster.ended(mine)["status"] == "released"
    assert client.nodes.get("n1")["claimed_by"] == me

    stopped = cluster.get(victim)
    assert stopped["status"] == "suspended", "nobody else is put on a claimed node"
    assert stopped["saved"] and stopped["preempted_count"] == 1
    client.nodes.unclaim(["n1"])
    ended = cluster.ended(victim)
    assert (ended["status"], ended["attempt"]) == ("released", 2)
    notes = [line.partition(" ")[2] for line in read_when_there(tmp_path / "notes").splitlines()]
    assert notes[-1] == "from 42", "it went on from what it had saved"

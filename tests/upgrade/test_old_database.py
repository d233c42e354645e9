"""A database of a landed version opens in this one with everything that was in it.

The API is asked before and after. What it answered it answers again, field by field; fields that
are new may stand beside. Every version on SQLite, the oldest and the newest on PostgreSQL too;
`tests/upgrade/versions.py` says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cede import Client
from cede.client.http import API
from tests.agent.cluster import TEAM, Cluster
from tests.agent.crew import HEARTBEAT, SETTINGS, Crew, crews
from tests.client.serving import two_teams
from tests.support.sources import HERE, Source
from tests.upgrade.versions import ENDS, VERSIONS, name

pytestmark = [pytest.mark.system, pytest.mark.slow]

POSTGRES = pytest.mark.postgres
Answers = dict[str, dict[str, Any]]
# What passes with time, whoever is asked.
# Time passes, and the sentences of a reason may be worded better; its code and its numbers stay.
PASSING = {"seconds_left", "silent", "text", "fix"}
HELD = "gpus"
KEY = "said-before-the-upgrade"
AGAIN = {
    "pool": HELD, "component": TEAM, "component_type": "team", "kind": "work",
    "resources": {"gpu": 1}, "lease": 600,
}  # fmt: skip


@pytest.fixture
def cluster(old: Source, tmp_path: Path, database_url: str) -> Iterator[Cluster]:
    made = Cluster(tmp_path, HEARTBEAT, old, database_url, SETTINGS)
    try:
        yield made
    finally:
        made.stop()


def answers(client: Client) -> Answers:
    """All that the API lists, each thing by what names it."""
    read = partial(client.http.call, "GET")
    events = read(f"{API}/events", params={"limit": 500})["items"]
    audit = read(f"{API}/audit", params={"limit": 500})["items"]
    requests = [client.requests.get(each["id"]) for each in client.requests.list()]
    return {
        "pools": {each["id"]: each for each in client.pools.list()},
        "policies": {each["id"]: each for each in client.policies.list()},
        "tenants": {each["id"]: each for each in client.tenants.list()},
        "tokens": {each["id"]: each for each in client.tokens.list()},
        "nodes": {each["id"]: _by_request(each) for each in client.nodes.list()},
        "requests": {each["id"]: each for each in requests},
        "events": {each["index"]: each for each in events},
        "audit": {each["number"]: each for each in audit},
    }


def _by_request(node: dict[str, Any]) -> dict[str, Any]:
    """A server lists what is on a node as it came to know of it, so a restart changes the order."""
    return {**node, "allocations": {each["request"]: each for each in node["allocations"]}}


def lost(before: Any, after: Any, where: str = "") -> list[str]:
    """Where the second answer lacks something of the first, or says something else."""
    if isinstance(before, dict) and isinstance(after, dict):
        gone = [f"{where}.{key}: {before[key]!r} is gone" for key in before if key not in after]
        kept = [key for key in before if key in after and key not in PASSING]
        inside = (lost(before[key], after[key], f"{where}.{key}") for key in kept)
        return gone + [each for part in inside for each in part]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        inside = (lost(one, other, f"{where}[{n}]") for n, (one, other) in pairs)
        return [each for part in inside for each in part]
    if isinstance(before, str) and isinstance(after, str):
        # Victims are named in a sentence, in the order of the server's memory.
        before, after = (sorted(re.split("[ ,]+", text)) for text in (before, after))
    return [] if before == after else [f"{where}: was {before!r}, is {after!r}"]


def fill(cluster: Cluster, home: Path, old: Source) -> tuple[Crew, Crew]:
    """Requests in every state, held by agents and by clients, and nodes, one of them drained.

    Nothing moves any more when the agents are gone.
    """
    client = cluster.client
    client.tenants.create("bio", max_nodes=4)
    client.tokens.revoke(client.tokens.create("gone", "viewer")["id"])
    two_teams(client, HELD)
    [asked, saved] = crews(cluster, {"n1": (1, 2), "n2": (1, 2)}, home, old)
    place = {"node_labels": {"host": "n1"}, "resources": {"mcpu": 1}}
    assert cluster.ended(cluster.submit("true", **place))["status"] == "released"
    assert cluster.ended(cluster.submit("false", **place))["status"] == "failed"
    waiter = cluster.submit("true", gpus=3, node_labels={"host": "n1"})
    client.requests.cancel(cluster.submit("true", gpus=3, node_labels={"host": "n1"}))
    client.requests.create(AGAIN, key=KEY)
    asked.ask()
    saved.ask()
    saved.save()
    saved.suspended()
    saved.check(victims="gone")
    cluster.agent("n3", 1)
    client.nodes.drain("n3", "new fan")
    cluster.until(lambda: cluster.nodes()["n3"] == "drained")
    assert cluster.get(waiter)["status"] == "queued"
    for agent in cluster.agents:
        assert agent.end() == 0
    return asked, saved


@pytest.mark.parametrize(
    ("version", "database_url"),
    [
        *(pytest.param(each, "sqlite", id=f"{name(each)}-sqlite") for each in VERSIONS),
        *(
            pytest.param(each, "postgresql", id=f"{name(each)}-postgresql", marks=POSTGRES)
            for each in ENDS
        ),
    ],
    indirect=True,
)
def test_everything_is_there_as_it_was(cluster: Cluster, old: Source, tmp_path: Path) -> None:
    asked, saved = fill(cluster, tmp_path / "work", old)
    before = answers(cluster.client)
    states = {each["status"] for each in before["requests"].values()}
    assert states == {
        "allocated", "cancelled", "failed", "preempting", "queued", "released", "suspended",
    }  # fmt: skip
    assert all(before.values()), "nothing was compared"

    assert cluster.server.end() == 0
    cluster.server.source = HERE
    cluster.server.start()
    missing = lost(before, answers(cluster.client))
    assert not missing, "\n".join(missing)
    # What was said twice was said once, also to two versions.
    again = cluster.client.requests.create(AGAIN, key=KEY)
    assert again["id"] in before["requests"]

    # It is not only shown: agents of this version go on with it.
    for agent in cluster.agents:
        agent.source = HERE
        agent.start()
    for crew in (asked, saved):
        crew.takes_work()
    asked.save()
    asked.suspended()
    for crew in (asked, saved):
        crew.resume()
        crew.finish()


def test_a_difference_is_found() -> None:
    before: Answers = {"requests": {"a": {"saved": {"id": "1"}, "members": [{"task": 0}]}}}
    assert lost(before, {**before, "new": {}}) == []
    assert lost({"on_silence": "keep"}, {"on_silence": None})
    for after in (
        {},
        {"requests": {}},
        {"requests": {"a": {"saved": None, "members": [{"task": 0}]}}},
        {"requests": {"a": {"saved": {"id": "2"}, "members": [{"task": 0}]}}},
        {"requests": {"a": {"saved": {"id": "1"}, "members": []}}},
        {"requests": {"a": {"saved": {"id": "1"}, "members": [{"task": 1}]}}},
    ):
        assert lost(before, after), after

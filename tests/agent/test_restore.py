"""A server restored from a backup while agents and clients hold what the backup does not know."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from tests.agent.cluster import POOL, Cluster, alive, read_when_there
from tests.client.serving import BIN, Serving, eventually, two_teams

pytestmark = [pytest.mark.system, pytest.mark.slow]

LONG = "echo $$ > {}; exec sleep 1000"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def serving(tmp_path: Path, database_url: str) -> Iterator[Serving]:
    made = Serving(tmp_path / "data", database_url)
    try:
        yield made
    finally:
        made.stop()


def cede(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [BIN / "cede", *arguments]
    return subprocess.run([str(each) for each in command], capture_output=True, text=True)


def done(*arguments: object) -> str:
    found = cede(*arguments)
    assert found.returncode == 0, found.stderr
    return found.stdout


def refused(*arguments: object) -> str:
    found = cede(*arguments)
    assert found.returncode == 1 and found.stderr.startswith("cede: "), found
    assert found.stderr.count("\n") == 1
    return found.stderr


def test_a_node_takes_nothing_until_it_runs_nothing_unknown(
    cluster: Cluster, tmp_path: Path
) -> None:
    agent = cluster.agent("n1", 2)
    client, data = cluster.client, cluster.server.data
    first = cluster.submit("sleep", "1000")
    cluster.until(lambda: cluster.events(first, "started"))
    unknown, copy = tmp_path / "unknown", tmp_path / "copy.db"
    waiting = cluster.submit("sh", "-c", LONG.format(unknown), gpus=2)
    done("backup", copy, "--data", data)
    client.requests.cancel(first)
    process = int(read_when_there(unknown))

    agent.signal(signal.SIGSTOP)
    assert cluster.server.end() == 0
    done("restore", copy, "--data", data)
    cluster.server.start()
    # The request that runs unknown to the copy waits in it, and so does what is asked for now.
    new = cluster.submit("true", gpus=1)
    assert client.requests.why(waiting)["reason"]["code"] == "restored"
    assert "n1" in client.requests.why(new)["reason"]["text"]
    assert client.pools.get(POOL)["quarantined"] and client.nodes.get("n1")["quarantined"]
    assert alive(process)

    agent.signal(signal.SIGCONT)
    cluster.until(lambda: not client.nodes.get("n1")["quarantined"])
    assert not alive(process)
    # It goes on by itself when every lease of the cluster is over, and nothing is lost by it.
    assert cluster.ended(new)["status"] == "released"
    # That it was cancelled is lost with the rest.
    cluster.until(lambda: cluster.get(first)["attempt"] == 2, about=first)
    client.requests.cancel(first)
    cluster.until(lambda: cluster.get(waiting)["status"] == "allocated", about=waiting)
    cluster.until(lambda: int(read_when_there(unknown)) != process)


def test_units_that_a_client_may_hold_are_granted_again_after_its_lease(
    tmp_path: Path,
) -> None:
    copy = tmp_path / "copy.db"
    serving = Serving(tmp_path / "data")
    try:
        with serving.client() as client:
            two_teams(client, "gpus")
            done("backup", copy, "--data", serving.data)
            ask = {"pool": "gpus", "component": "red", "component_type": "team", "lease": 2}
            ask["resources"] = dict(client.pools.get("gpus")["capacity"])
            held = client.requests.create(ask)
            assert held["status"] == "allocated"
            assert "stop it first" in refused("restore", copy, "--data", serving.data)
            serving.end()
            assert "replaced" in done("restore", copy, "--data", serving.data)
            serving.start()
            later = client.requests.create(ask | {"lease": 600})
            assert later["status"] == "queued"
            assert client.requests.why(later["id"])["reason"]["code"] == "restored"
            eventually(lambda: client.requests.get(later["id"])["status"] == "allocated")
    finally:
        serving.stop()


def test_a_database_that_was_put_in_place_by_hand_is_accepted(serving: Serving) -> None:
    database = serving._database
    place = ("--data", serving.data, "--database", database)
    with serving.client() as client:
        two_teams(client, "gpus")
        ask = {"pool": "gpus", "component": "red", "component_type": "team", "lease": "none"}
        ask["resources"] = {"gpu": 1}
        assert client.requests.create(ask)["status"] == "allocated"
        seen = client.http.call("GET", "/api/v1/whoami")
        assert "stop all servers first" in refused("restore", "--accept", *place)
        serving.end()
        done("restore", "--accept", *place)
        serving.start()
        later = client.requests.create(ask)
        assert later["status"] == "queued"
        # Somebody may hold without a lease: only an operator knows when that is over.
        assert "no end" in client.requests.why(later["id"])["reason"]["text"]
        client.pools.enable("gpus")
        assert client.requests.get(later["id"])["status"] == "allocated"
        assert seen == client.http.call("GET", "/api/v1/whoami")
        [entry] = [each for each in client.audit.list() if each["action"] == "database.restore"]
        assert entry["actor"] == "cede restore"


def test_only_a_sound_copy_is_made_or_restored(serving: Serving, tmp_path: Path) -> None:
    place = ("--data", serving.data, "--database", serving._database)
    copy = tmp_path / "copy.db"
    if make_url(serving._database or "").get_backend_name() != "sqlite":
        assert "pg_dump" in refused("backup", copy, *place)
        return
    done("backup", copy, *place)
    assert copy.stat().st_mode & 0o077 == 0
    assert "exists already" in refused("backup", copy, *place)
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("UPDATE pools SET description = 'changed'")
        connection.commit()
    serving.end()
    before = (tmp_path / "cede.db").read_bytes()
    assert "damaged" in refused("restore", copy, *place)
    assert (tmp_path / "cede.db").read_bytes() == before
    serving.start()

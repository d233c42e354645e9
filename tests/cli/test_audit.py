"""`cede audit …`, typed at a real server and at its database."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from cede import Client
from cede.cli import exit_codes
from cede.model import bounds
from tests.client.serving import Serving

pytestmark = pytest.mark.system


def verify(server: Serving, *more: object) -> subprocess.CompletedProcess[str]:
    return server.cede("audit", "verify", *more)


def tamper(data: Path, *statements: str) -> None:
    with closing(sqlite3.connect(data / "cede.db")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_the_audit_is_listed(server: Serving, client: Client) -> None:
    client.pools.create("gpus", {"gpu": 8})
    done = server.cede("audit", "list", "--limit", "2", "-o", "json")
    found = json.loads(done.stdout)
    assert len(found) == 2
    assert (found[0]["action"], found[0]["number"]) == ("pool.create", found[1]["number"] + 1)


def test_an_untouched_audit_holds_and_the_head_can_be_noted(
    server: Serving, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.pools.create("gpus", {"gpu": 8})
    with_server, without = verify(server, "--json"), verify(server, "--data", server.data, "--json")
    assert (with_server.returncode, without.returncode) == (0, 0), with_server.stderr
    found = json.loads(with_server.stdout)
    assert found == json.loads(without.stdout)
    assert found["ok"] and found["head"].startswith(f"{found['entries']}:")
    client.pools.delete("gpus")
    database = f"sqlite:///{server.data}/cede.db"
    for where in ((), ("--database", database)):
        assert verify(server, *where, "--noted", found["head"]).returncode == 0
        other = f"{found['entries']}:{'a' * 64}"
        done = verify(server, *where, "--noted", other)
        assert done.returncode == exit_codes.BROKEN
        assert f"broken at entry {found['entries']}: noted" in done.stdout
    # In pieces of one entry the server finds the same.
    monkeypatch.setattr(bounds, "AUDIT_PIECE_MAX", 1)
    assert client.audit.verify(found["head"])["ok"]


def test_an_edit_is_found_with_and_without_the_server(own_server: Serving) -> None:
    server = own_server
    with server.client() as client:
        client.pools.create("gpus", {"gpu": 8})
        tamper(
            server.data,
            "DROP TRIGGER audit_keep",
            "UPDATE audit SET actor = 'mallory' WHERE number = 2",
        )
        ways = [(), ("--data", server.data)]
        for where in ways:
            done = verify(server, *where)
            assert done.returncode == exit_codes.BROKEN, done.stderr
            assert "broken at entry 2: hash" in done.stdout
            assert "the 1 entries before it hold" in done.stdout
            assert json.loads(verify(server, *where, "--json").stdout)["broken"]["number"] == 2
        last = client.audit.verify()["head"].partition(":")[0]
        tamper(server.data, "DROP TRIGGER audit_stay", f"DELETE FROM audit WHERE number = {last}")
        server.kill()
        done = verify(server, "--data", server.data, "--json")
        assert json.loads(done.stdout)["broken"]["number"] == 2
        tamper(server.data, "DELETE FROM audit")
        done = verify(server, "--data", server.data)
        assert "broken at entry 1: head" in done.stdout


def test_only_operators_verify_and_what_is_wrong_is_said(server: Serving, client: Client) -> None:
    made = {role: client.tokens.create(role, role)["token"] for role in ("viewer", "operator")}
    refused = server.cede("audit", "verify", token=made["viewer"])
    assert refused.returncode == exit_codes.UNAUTHORIZED
    assert server.cede("audit", "verify", token=made["operator"]).returncode == 0
    assert verify(server, "--noted", "7:abc").returncode == exit_codes.USAGE
    done = verify(server, "--database", "sqlite:////nonexistent/cede.db")
    assert done.returncode == exit_codes.ERROR
    assert "there is no database" in done.stderr

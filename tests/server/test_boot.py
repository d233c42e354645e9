"""The first start makes an administrator and this machine as a pool; later starts make nothing."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from cede.model.token import Role
from cede.server import boot, tokens
from tests.server.helpers import PATIENCE, running

URL = "http://127.0.0.1:8080"


def test_first_start(database_url: str, tmp_path: Path) -> None:
    with running(database_url) as (store, writer):
        made = boot.first_start(store, writer, tmp_path, URL)
        assert made is not None
        token = store.find_token(tokens.hash_of(made.secret))
        assert token is not None and token.role is Role.ADMIN
        assert token.subjects == (made.subject,)
        assert store.get_pool("local").capacity == made.capacity
        (policy,) = [each.policy for each in store.list_policies().items]
        assert policy.subject == made.subject
        assert policy.reserved == policy.limit == made.capacity
        assert [each.note.action for each in store.list_audit().items] == [
            "token.create",
            "policy.attach",
            "pool.create",
        ]
        assert store.verify_audit().broken is None


def test_the_secret_is_in_a_private_file_and_nowhere_else(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'cede.db'}"
    with running(url) as (store, writer):
        made = boot.first_start(store, writer, tmp_path, URL)
    assert made is not None
    file = tmp_path / "client.yaml"
    assert yaml.safe_load(file.read_text()) == {"server": URL, "token": made.secret}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    others = [path for path in tmp_path.iterdir() if path != file]
    assert not [path for path in others if made.secret.encode() in path.read_bytes()]
    assert stat.S_IMODE((tmp_path / "cede.db").stat().st_mode) == 0o600


def test_a_later_start_makes_nothing_and_follows_the_port(
    database_url: str, tmp_path: Path
) -> None:
    with running(database_url) as (store, writer):
        made = boot.first_start(store, writer, tmp_path, URL)
        assert boot.first_start(store, writer, tmp_path, "http://127.0.0.1:9") is None
        assert len(store.list_tokens().items) == 1
    assert made is not None
    content = yaml.safe_load((tmp_path / "client.yaml").read_text())
    assert content == {"server": "http://127.0.0.1:9", "token": made.secret}


def test_with_an_agent_the_pool_is_made_of_this_machine(database_url: str, tmp_path: Path) -> None:
    with running(database_url) as (store, writer):
        node = boot.this_node(10_000)
        made = boot.first_start(store, writer, tmp_path, URL, node=node)
        assert made is not None
        pool = store.get_pool("local")
        assert pool.nodes == node.labels
        assert pool.capacity == node.amounts == made.capacity


def test_a_crash_before_the_commit_leaves_no_administrator_without_a_secret(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(database_url) as (store, writer):
        with monkeypatch.context() as patch:
            patch.setattr(boot, "_command", lambda made, node: lambda tx: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                boot.first_start(store, writer, tmp_path, URL)
        assert boot.first_start(store, writer, tmp_path, URL) is not None
        found = yaml.safe_load((tmp_path / "client.yaml").read_text())["token"]
        assert store.find_token(tokens.hash_of(found)) is not None


def test_where_work_reads_every_file_the_administrators_secret_is_in_none(tmp_path: Path) -> None:
    shown: list[str] = []

    def show(secret: str) -> None:
        # First: a crash in between leaves a secret that opens nothing.
        assert not store.list_tokens(limit=1).items
        shown.append(secret)

    with running(f"sqlite:///{tmp_path / 'cede.db'}") as (store, writer):
        made = boot.first_start(store, writer, tmp_path, URL, show=show)
        in_file = yaml.safe_load((tmp_path / "client.yaml").read_text())["token"]
        roles = {each: store.find_token(tokens.hash_of(each)) for each in (*shown, in_file)}
    assert made is not None and shown == [made.secret]
    assert [each and each.role for each in roles.values()] == [Role.ADMIN, Role.SUBMITTER]
    assert [each and each.subjects for each in roles.values()] == [(made.subject,)] * 2
    for path in tmp_path.iterdir():
        assert made.secret.encode() not in path.read_bytes()


def test_work_of_the_first_user_runs_at_once(database_url: str, tmp_path: Path) -> None:
    from cede.engine.lifecycle.commands import Submission, submit

    with running(database_url) as (store, writer):
        made = boot.first_start(store, writer, tmp_path, URL)
        assert made is not None
        wanted = Submission("mine", made.subject, {"mcpu": 500, "step_run": 1}, preemptible=False)
        writer.execute(lambda tx: submit(tx.state, wanted, tx.now)).result(PATIENCE)
        assert store.get_request("mine").request.status == "allocated"


def test_this_machine_has_slots_for_a_small_pipeline() -> None:
    capacity = boot.this_machine()
    assert capacity["step_run"] >= 64
    assert capacity["mcpu"] >= 1000 and capacity["memory_mb"] > 0

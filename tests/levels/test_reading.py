"""Readers read committed rows while the writer goes on: what they say is still of one piece."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cede.engine.lifecycle import commands
from tests.levels.inside import Inside


def test_who_leaves_the_queue_while_it_is_listed_is_not_shown_waiting_for_no_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Inside(f"sqlite:///{tmp_path / 'cede.db'}")
    team = {"component": "red", "component_type": "team"}
    server.call("POST", "/pools", {"name": "gpus", "capacity": {"gpu": 1}})
    server.call("POST", "/policies", {"pool": "gpus", **team})
    asked = {**team, "resources": {"gpu": 1}}
    holder, waiter = (server.call("POST", "/requests", asked)[1]["id"] for _ in range(2))
    read = server.store.list_requests

    def read_and_be_late(*wanted: Any, **bounds: Any) -> Any:
        page = read(*wanted, **bounds)
        server.writer.execute(lambda tx: commands.release(tx.state, holder, tx.now)).result(30)
        return page

    monkeypatch.setattr(server.store, "list_requests", read_and_be_late)
    (shown,) = server.call("GET", "/requests?status=queued&explain=true")[1]["items"]
    assert (shown["id"], shown["status"]) == (waiter, "allocated")
    server.close()

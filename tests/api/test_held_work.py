"""Work that its client holds: renewals are its orders, and what it says is its conversation."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from cede.model import bounds
from tests.api.conftest import PATIENCE, Server, made

API = "/api/v1"


def test_a_renewal_waits_for_news_and_gets_them_at_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "RENEW_WAIT_MAX", 1000 * PATIENCE)
    server.pool("gpus", 2)
    server.policy("red", priority=1)
    server.policy("blue", priority=5, reserved={"gpu": 2})
    mine = server.submit("red", 2)
    path = f"{API}/requests/{mine['id']}/renew"
    answers: list[tuple[float, dict[str, Any]]] = []

    def wait() -> None:
        began = time.monotonic()
        told = {"attempt": 1, "running": True, "wait": PATIENCE - 5}
        answer = made(server["red"].post(path, json=told))
        answers.append((time.monotonic() - began, answer))

    caller = threading.Thread(target=wait)
    caller.start()
    while not server.writer.order_board._waiting:
        time.sleep(0.01)
    server.submit("blue", 2)
    caller.join(PATIENCE)
    (took, answer), *_ = answers
    assert took < PATIENCE / 2 and answer["status"] == "preempting"


def test_client_held_work_converses(server: Server) -> None:
    server.pool("gpus", 2)
    server.policy("red", priority=1)
    server.policy("blue", priority=5, reserved={"gpu": 2})
    mine = server.submit("red", 2, checkpoint="auto", checkpoint_timeout=600, kind="work")
    path = f"{API}/requests/{mine['id']}"
    made(server["red"].post(f"{path}/renew", json={"attempt": 1, "running": True}))
    server.submit("blue", 2)
    told = made(server["red"].post(f"{path}/renew", json={"attempt": 1}))
    stop_progress = told["allocation"]["parting"]
    assert told["status"] == "preempting" and 500 < stop_progress["seconds_left"] <= 600
    later = {"attempt": 1, "kind": "deferral", "seconds": 30}
    longer = made(server["red"].post(f"{path}/said", json=later))["allocation"]["parting"]
    assert longer["deferred"] == 30 and longer["seconds_left"] > 530
    older = {"attempt": 1, "kind": "saved", "checkpoint": "c0", "size": 7}
    saved = made(server["red"].post(f"{path}/said", json=older))
    assert saved["saved"]["id"] == "c0" and saved["allocation"]["state"] == "checkpointing"
    kept = older | {"checkpoint": "c1", "hint": stop_progress["hint"]}
    saved = made(server["red"].post(f"{path}/said", json=kept))
    assert saved["saved"]["id"] == "c1" and saved["allocation"]["parting"]["saved"]
    assert saved["allocation"]["state"] == "stopping"
    stale = server["red"].post(f"{path}/said", json=kept | {"attempt": 2})
    assert stale.status_code == 409
    stopped = {"attempt": 1, "outcome": "stopped"}
    assert made(server["red"].post(f"{path}/release", json=stopped))["status"] == "suspended"

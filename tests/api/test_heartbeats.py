"""A heartbeat waits for news, costs nothing without, and is missed when it does not come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cede.model import bounds
from cede.server.api import auth
from cede.server.api.app import close_streams
from tests.api.conftest import PATIENCE, Server, made
from tests.api.machines import API, Machine, events_of, pool_of_nodes, run

Eventually = Callable[[Callable[[], bool]], None]


def test_a_heartbeat_waits_for_news_and_gets_them_at_once(farm: Server) -> None:
    _heartbeat(farm, int(1000 * PATIENCE))  # as long as this an answer may be held back
    alpha = Machine(farm)
    alpha.beat()
    answers: list[tuple[float, dict[str, Any]]] = []

    def wait() -> None:
        began = time.monotonic()
        answer = alpha.beat(wait=PATIENCE - 5)
        answers.append((time.monotonic() - began, answer))

    caller = threading.Thread(target=wait)
    caller.start()
    while not farm.writer.order_board._waiting:
        time.sleep(0.01)
    run(farm)
    caller.join(PATIENCE)
    (took, answer), *_ = answers
    assert took < PATIENCE / 2 and len(answer["orders"]) == 1


def test_a_heartbeat_without_news_costs_neither_writer_nor_database(
    farm: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    alpha = Machine(farm)
    alpha.beat()

    def forbidden(*given: Any, **named: Any) -> Any:
        raise AssertionError("a heartbeat asked for it")

    for name in ("run", "ask", "execute", "query"):
        monkeypatch.setattr(farm.writer, name, forbidden)
    monkeypatch.setattr(farm.store, "find_token", forbidden)
    monkeypatch.setattr(farm.app.state.cede.auth, "_find", forbidden)
    before = farm.writer.index
    assert auth.NODE_CACHE_SECONDS > 10
    for _ in range(3):
        alpha.beat()
    assert farm.writer.index == before


@pytest.mark.slow  # a node is called down seconds after its lease, whatever the lease
def test_a_silent_node_is_degraded_and_comes_back(server: Server, eventually: Eventually) -> None:
    _heartbeat(server, 100)
    pool_of_nodes(server, settings={"node_lease": 1})
    server.policy("red", "farm")
    alpha = Machine(server)

    def state() -> str:
        return str(made(server["viewer"].get(f"{API}/nodes/alpha"))["state"])

    def is_ready() -> bool:
        """On a busy machine a tenth of a second may be over before we look."""
        alpha.beat()
        return state() == "ready"

    eventually(is_ready)
    eventually(lambda: state() == "down")
    kinds = [each["kind"] for each in events_of(server)]
    assert kinds.index("node_degraded") < kinds.index("node_down")
    eventually(is_ready)


def _heartbeat(server: Server, milliseconds: int) -> None:
    """What machines that join from now on are told."""
    context = server.app.state.cede
    context.config = replace(context.config, heartbeat=milliseconds)


def test_a_server_that_stops_lets_nobody_wait(server: Server) -> None:
    _heartbeat(server, int(1000 * PATIENCE))
    alpha = Machine(server)
    alpha.beat()
    codes: list[int] = []
    held = PATIENCE - 5
    caller = threading.Thread(target=lambda: codes.append(alpha.call(wait=held).status_code))
    caller.start()
    while not server.writer.order_board._waiting:
        time.sleep(0.01)
    began = time.monotonic()
    close_streams(server.app)
    caller.join(PATIENCE)
    assert codes == [200] and time.monotonic() - began < PATIENCE / 2


def test_a_storm_of_calls_takes_nothing_from_heartbeats(farm: Server) -> None:
    alpha = Machine(farm)
    limiter = farm.app.state.cede.limiter
    token_id = next(each.id for each in farm.store.list_tokens().items if each.name == "node alpha")
    limiter._buckets[f"all:{token_id}"] = type(next(iter(limiter._buckets.values())))(-1e9, 0)
    alpha.beat()


def test_a_node_that_could_not_start_work_says_what_helps_and_is_tried_again(farm: Server) -> None:
    alpha = Machine(farm)
    run(farm)
    for _ in range(bounds.NODE_FAILURES_MAX):
        (order,) = alpha.beat()["orders"]
        alpha.tell(order, "refused", text="the disk is full")
    path = f"{API}/nodes/alpha"
    shown = made(farm["viewer"].get(path))
    assert shown["state"] == "degraded" and "the disk is full" in shown["reason"]
    assert "tried again every 5 minutes; now: cede node enable alpha" in shown["reason"]
    assert alpha.beat()["orders"] == []
    farm.writer.order_board.posted[alpha.id].at -= bounds.NODE_RETRY  # so long ago
    (order,) = alpha.beat()["orders"]
    alpha.tell(order, "started")
    shown = made(farm["viewer"].get(path))
    assert (shown["state"], shown["reason"], shown["failures"]) == ("ready", "", 0)

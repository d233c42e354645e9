"""A server whose term may be over promises nothing: 503, whoever calls and whatever it knows."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

import pytest

from cede.server import clock, forked
from cede.server.api import costly
from cede.server.leadership import MARGIN_DIVISOR, Leadership, NotLeading
from cede.store.errors import DatabaseAway
from tests.api.conftest import Server
from tests.api.machines import Machine, run


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The clock of the machine, in milliseconds."""
    now = [1_000_000]
    monkeypatch.setattr(clock, "boottime", lambda: now[0])
    return now


def test_a_term_counts_from_before_its_renewal_was_sent(time: list[int]) -> None:
    term = Leadership(10_000)
    with pytest.raises(NotLeading):
        term.require()  # nothing was renewed yet
    sent_at = time[0]
    time[0] += 3_000  # what the database took to answer
    term.renewed(sent_at)
    lasts = 10_000 - 10_000 // MARGIN_DIVISOR
    assert term.seconds_left == (lasts - 3_000) / 1000
    time[0] = sent_at + lasts - 1
    term.require()
    time[0] += 1
    with pytest.raises(NotLeading):
        term.require()
    term.renewed(sent_at - 1)  # an older one, late
    with pytest.raises(NotLeading):
        term.require()


def test_a_lock_on_a_file_ends_with_its_process_only(time: list[int]) -> None:
    term = Leadership(None)
    time[0] += 10**9
    term.require()
    assert term.seconds_left is None


def lose_term(server: Server) -> None:
    """As after a freeze, or behind a network that swallows what is sent to the database."""
    server.writer.leadership = Leadership(1)


def refused(answer: object) -> bool:
    return (
        getattr(answer, "status_code", 0) == 503
        and getattr(answer, "headers", {}).get("Retry-After") == "1"
        and answer.json()["type"].endswith("not_leading")  # type: ignore[attr-defined]
    )


def test_nothing_is_promised_after_the_term(farm: Server) -> None:
    alpha = Machine(farm)
    asked = run(farm)
    alpha.beat()
    lose_term(farm)
    assert refused(alpha.call())
    assert refused(alpha.register(alpha.token))
    path = f"/api/v1/requests/{asked['id']}"
    assert refused(farm["red"].post(f"{path}/renew", json={"attempt": 1}))
    assert refused(farm["red"].get(path))
    assert refused(farm["red"].post("/api/v1/requests", json={"resources": {"gpu": 1}}))
    for open_path in ("/healthz", "/readyz"):
        assert refused(farm["nobody"].get(open_path))
    assert farm["nobody"].get("/version").status_code == 200


def test_a_refusal_is_a_promise_too(farm: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that is over for a deposed server may be the current one of its successor."""
    farm.pool("counted", gpu=1)
    farm.policy("red", "counted")
    asked = farm.submit("red", 1, pool="counted")
    path, stale = f"/api/v1/requests/{asked['id']}/renew", {"attempt": 7}
    assert farm["red"].post(path, json=stale).status_code == 409
    writer = farm.writer
    usual = writer.run

    def ends_with_it(*given: Any, **more: Any) -> asyncio.Future[Any]:
        future = usual(*given, **more)
        future.add_done_callback(lambda _: lose_term(farm))
        return future

    monkeypatch.setattr(writer, "run", ends_with_it)
    assert refused(farm["red"].post(path, json=stale))


def test_a_heartbeat_that_waits_is_not_answered_after_the_term(farm: Server) -> None:
    """The look is after the wait: what was held back is a promise of when it is answered."""
    alpha = Machine(farm)
    seen = alpha.beat()
    answers: list[object] = []

    def wait() -> None:
        answers.append(alpha.call(wait=60, epoch=seen["epoch"], seen=seen["version"]))

    waiter = threading.Thread(target=wait)
    waiter.start()
    while alpha.id not in farm.writer.order_board._waiting:
        assert waiter.is_alive()
    lose_term(farm)
    farm.writer.order_board.close()  # wakes it
    waiter.join()
    assert refused(answers[0])


def test_a_read_in_a_child_is_not_answered_after_the_term(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pool("gpus", 2)
    monkeypatch.setattr(costly, "SMALL_STATE", -1)
    usual = forked.fork_read

    def ends_with_it(*given: Any) -> tuple[int, int]:
        lose_term(server)
        return usual(*given)

    monkeypatch.setattr(forked, "fork_read", ends_with_it)
    assert refused(server["viewer"].get("/api/v1/pools/gpus/shares"))


def test_a_read_whose_child_hangs_is_refused_when_the_term_ends(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be given up after a minute; the caller can ask another server long before."""
    server.pool("gpus", 2)
    monkeypatch.setattr(costly, "SMALL_STATE", -1)
    usual, children = forked.fork_read, []

    def hangs(read: Any, *given: Any) -> tuple[int, int]:
        child = usual(lambda *_: signal.pause(), *given)
        children.append(child[0])
        return child

    monkeypatch.setattr(forked, "fork_read", hangs)
    term = server.writer.leadership = Leadership(1_000)
    term.renewed(clock.boottime())
    try:
        assert refused(server["viewer"].get("/api/v1/pools/gpus/shares"))
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)


def test_a_database_that_is_away_is_503(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(**_: object) -> None:
        raise DatabaseAway

    monkeypatch.setattr(server.store, "list_pools", away)
    answer = server["viewer"].get("/api/v1/pools")
    assert answer.status_code == 503 and answer.headers["Retry-After"] == "2"
    assert answer.json()["type"].endswith("database_away")

"""C10: what costs much is refused before it is built, or computed once and beside the writer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

from cede.model import bounds
from cede.server import forked
from cede.server.api import costly, shares
from cede.server.api.errors import unavailable
from tests.api.conftest import PATIENCE, Server, made

API = "/api/v1"


def unknown(count: int) -> dict[str, int]:
    return {f"u{number}": 1 for number in range(count)}


def test_a_body_of_many_values_is_refused_while_it_is_read(shared: Server) -> None:
    """59 of these took 4.8 GB, because every unknown key became an error of its own."""
    text = b'{"resources": {"gpu": 1}' + b',"aaaa":1' * 400_000
    sent = 0

    def pieces() -> Any:
        nonlocal sent
        for at in range(0, len(text), 65_536):
            sent += 65_536
            yield text[at : at + 65_536]

    headers = {"Content-Type": "application/json"}
    answer = shared["red"].post(f"{API}/requests", content=pieces(), headers=headers)
    assert answer.status_code == 413
    assert f"more than {bounds.VALUES_MAX} values" in answer.json()["detail"]


def test_many_unknown_fields_are_one_problem(shared: Server) -> None:
    body = {"resources": {"gpu": 1}, **unknown(10_000)}
    answer = shared["red"].post(f"{API}/requests", json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"] == "u0: unknown field, and 9999 others"
    nested = {"resources": {"gpu": 1}, "retry": {"max_retries": 1, **unknown(10_000)}}
    answer = shared["red"].post(f"{API}/requests", json=nested)
    assert answer.status_code == 422 and answer.json()["field"] == "retry.u0"
    items = [{"resources": {"gpu": 1}, **unknown(1_000)}] * 50
    answer = shared["red"].post(f"{API}/requests/bulk", json={"requests": items})
    assert [each["status"] for each in answer.json()["items"]] == [422] * 50
    assert len(answer.content) < 50_000


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Shares take until this file is there, and are always computed in a child."""
    go, real = tmp_path / "go", shares.view_of

    def slow(*arguments: Any, **named: Any) -> Any:
        while not go.exists():
            time.sleep(0.01)
        return real(*arguments, **named)

    monkeypatch.setattr(shares, "view_of", slow)
    monkeypatch.setattr(costly, "SMALL_STATE", 0)
    return go


def test_readers_of_shares_delay_no_renewal(
    server: Server,
    held_up: Path,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., None],
) -> None:
    """Eight of them made a renewal take 43 s: on the writer's thread, each for itself."""
    server.pool("gpus", 8)
    server.policy("red")
    held = server.submit("red", 1)
    started: list[int] = []
    real = forked.fork_read
    monkeypatch.setattr(forked, "fork_read", lambda *given: started.append(1) or real(*given))
    answers: list[int] = []
    viewer = server["viewer"]

    def look() -> None:
        answers.append(viewer.get(f"{API}/pools/gpus/shares").status_code)

    readers = [threading.Thread(target=look) for _ in range(8)]
    for each in readers:
        each.start()
    eventually(lambda: bool(started))
    for _ in range(20):  # while somebody's shares are being computed
        assert made(server["red"].post(f"{API}/requests/{held['id']}/renew"))["id"] == held["id"]
    assert not answers
    held_up.touch()
    for each in readers:
        each.join(PATIENCE)
    assert answers == [200] * 8
    assert len(started) <= 8 // 2, "those who ask the same share what is computed"


def test_a_read_in_a_child_says_what_it_would_have_said_here(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pool("gpus", 2)
    server.policy("red")
    server.policy("blue")
    for who in ("red", "blue", "red", "blue"):
        waits = server.submit(who, 1)
    paths = ["pools/gpus/shares", f"requests/{waits['id']}/why", "requests?explain=true"]
    paths += ["snapshot", "pools/none/shares"]
    found = []
    for small in (1_000, 0):
        monkeypatch.setattr(costly, "SMALL_STATE", small)
        answers = [server["operator"].get(f"{API}/{path}") for path in paths]
        found.append([(each.status_code, _timeless(each.json())) for each in answers])
    assert found[0] == found[1]
    assert [status for status, _ in found[0]] == [200, 200, 200, 200, 404]


@pytest.mark.slow
def test_a_light_read_is_forked_only_where_it_is_not_known_to_be_quick(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue is read for every page, twice a second; forking cost more than reading."""
    server.pool("gpus", 2)
    server.policy("red")
    monkeypatch.setattr(costly, "SMALL_STATE", -1)
    started: list[int] = []
    real = forked.fork_read
    monkeypatch.setattr(forked, "fork_read", lambda *given: started.append(1) or real(*given))

    def looks(path: str) -> int:
        """How many of three looks were forked."""
        started.clear()
        for _ in range(3):
            server.submit("red", 1)  # or the last answer would do
            made(server["viewer"].get(f"{API}/{path}"))
        return len(started)

    monkeypatch.setattr(costly, "FORK_SECONDS", inf)  # whatever the pace of the machine
    monkeypatch.setattr(costly, "CHILD_SECONDS", inf)
    assert looks("pools/gpus/queue?limit=5") == 1
    assert looks("pools/gpus/shares") == 3, "it tries something out"
    monkeypatch.setattr(costly, "FORK_SECONDS", -1.0)  # from now on nothing is quick
    assert looks("pools/gpus/queue?limit=5") == 2, "the first is known to have been quick"
    monkeypatch.setattr(costly, "CHILD_SECONDS", -1.0)
    assert looks("status") == 3, "too much in a child is not tried here"


def _timeless(value: Any) -> Any:
    """An answer without what passes with time."""
    if isinstance(value, dict):
        return {key: _timeless(inner) for key, inner in value.items() if key not in PASSING}
    if isinstance(value, list):
        return [_timeless(each) for each in value]
    return None if isinstance(value, float) else value


PASSING = {"now", "time", "boottime", "beats"}


def test_a_child_without_an_answer_is_503(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.pool("gpus", 2)
    monkeypatch.setattr(costly, "SMALL_STATE", -1)

    def broken(*given: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(shares, "view_of", broken)
    answer = server["viewer"].get(f"{API}/pools/gpus/shares")
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:cede:problem:read_too_long"
    assert int(answer.headers["Retry-After"]) > 0


def test_a_call_pays_what_it_took(server: Server) -> None:
    """A page of many rows costs five units before it is read, and what it took afterwards."""
    server.pool("gpus", 2)
    server.policy("red")
    item = {"resources": {"gpu": 1}}
    made(server["red"].post(f"{API}/requests/bulk", json={"requests": [item] * 500}))
    limiter = server.app.state.cede.limiter
    limiter.rate, limiter.burst = 1e-9, 2_000
    statuses = []
    while 429 not in statuses:
        statuses.append(server["viewer"].get(f"{API}/requests?limit=500").status_code)
        assert len(statuses) < 2_000 // 5, "it paid only what it was said to cost"
    assert server["red"].get(f"{API}/whoami").status_code == 200


def test_a_read_that_fails_takes_nobody_elses_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody asks the same while it is being computed, and then it fails: both hear why."""

    async def both() -> list[Any]:
        begun, go = asyncio.Event(), asyncio.Event()

        async def fails(*given: Any) -> bytes:
            begun.set()
            await go.wait()
            raise unavailable("read_too_long", "too long", 1)

        monkeypatch.setattr(costly.Costly, "_compute", fails)
        gate = costly.Costly(None, time.monotonic)  # type: ignore[arg-type]

        def ask() -> asyncio.Task[bytes]:
            return asyncio.create_task(gate.ask("shares", ("gpus",), lambda state, now: b""))

        first = ask()
        await begun.wait()
        second = ask()
        while not gate._waiting:
            await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(first, second, return_exceptions=True)

    assert [getattr(each, "status", each) for each in asyncio.run(both())] == [503, 503]

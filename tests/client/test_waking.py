"""Clients hear of a grant, a stop and an end when it is committed, however rarely they ask."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from cede import Client, Invalid
from cede.client import devices, lease, waiting, work
from cede.client.runner import Ended, Runner
from cede.client.waiting import BackOff, wait_for_grant
from cede.launch import probe
from cede.launch.probe import killer
from tests.client.serving import WAIT_SECONDS, eventually

T = TypeVar("T")
HOUR = 3600.0
ASKED = {"component": "red", "component_type": "team", "resources": {"gpu": 1}}


@pytest.fixture
def asks_once_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BackOff, "pause", lambda self: HOUR)
    monkeypatch.setattr(waiting, "_bounded", lambda pause, *_: pause)
    monkeypatch.setattr(work, "GAP_FIRST", HOUR)
    monkeypatch.setattr(work, "GAP_MAX", HOUR)


@pytest.fixture
def gpu(client: Client) -> dict[str, Any]:
    """A request that holds the only GPU."""
    client.pools.create("gpus", {"gpu": 1})
    client.policies.attach("gpus", "red", component_type="team", priority=1)
    held = client.requests.create(ASKED)
    assert held["status"] == "allocated"
    return held


def in_thread(call: Callable[[], T]) -> Callable[[], T]:
    """Start a call; what is returned waits for its result."""
    results: list[T] = []

    def run() -> None:
        results.append(call())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result() -> T:
        thread.join(WAIT_SECONDS)
        assert results, "it did not hear"
        return results[0]

    return result


@pytest.mark.system
@pytest.mark.usefixtures("asks_once_an_hour")
def test_a_waiter_starts_when_its_grant_is_committed(client: Client, gpu: dict[str, Any]) -> None:
    mine = client.requests.create(ASKED)
    waits = threading.Event()
    granted = in_thread(
        lambda: wait_for_grant(client, mine, sent_at=0.0, on_wait=lambda why: waits.set())
    )
    assert waits.wait(WAIT_SECONDS)
    client.requests.release(gpu["id"], attempt=1)
    assert granted().request["status"] == "allocated"


@pytest.mark.system
def test_what_a_start_needs_is_found_out_while_it_waits(
    client: Client, gpu: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a grant would wait for a trial of containment, and for a driver."""
    killer.cache_clear()
    found_out: list[str] = []

    def noted(module: Any, name: str) -> None:
        original = getattr(module, name)

        def call(*given: Any) -> Any:
            found_out.append(name)
            return original(*given)

        monkeypatch.setattr(module, name, call)

    noted(probe, "_try_kind")
    noted(devices, "known")
    waits = threading.Event()
    runner = Runner(client, ASKED, on_wait=lambda why: waits.set())
    ended = in_thread(lambda: runner.run(lambda told: lambda: os._exit(7)))
    assert waits.wait(WAIT_SECONDS)
    eventually(lambda: "known" in found_out)  # the last
    before = list(found_out)
    assert "_try_kind" in before
    client.requests.release(gpu["id"], attempt=1)
    done = ended()
    assert isinstance(done, Ended) and done.exit_code == 7
    assert found_out == before


@pytest.mark.system
@pytest.mark.usefixtures("asks_once_an_hour")
def test_whoever_waits_for_the_end_hears_of_it(client: Client, gpu: dict[str, Any]) -> None:
    seen = threading.Event()
    ended = in_thread(
        lambda: list(work.wait_for_end(client, [gpu["id"]], lambda found: seen.set()))
    )
    assert seen.wait(WAIT_SECONDS)
    client.requests.release(gpu["id"], attempt=1)
    assert [each["status"] for each in ended()] == ["released"]


@pytest.mark.system
@pytest.mark.usefixtures("asks_once_an_hour")
def test_a_wait_is_interrupted_while_its_answer_is_held_back(
    client: Client, gpu: dict[str, Any]
) -> None:
    mine, stop = client.requests.create(ASKED), threading.Event()
    waits = threading.Event()
    waited = in_thread(
        lambda: wait_for_grant(
            client, mine, sent_at=7.0, on_wait=lambda why: waits.set(), interrupted=stop
        )
    )
    assert waits.wait(WAIT_SECONDS)
    stop.set()
    assert waited().request["status"] == "queued" and waited().sent_at == 7.0


class _Answers:
    """Stands for `client.requests`: answers as told, and remembers what it was asked."""

    def __init__(self, *statuses: str) -> None:
        self.statuses = list(statuses)
        self.asked: list[dict[str, Any]] = []

    def renew(self, request: str, **fields: Any) -> dict[str, Any]:
        self.asked.append(fields)
        return {"id": request, "status": self.statuses.pop(0), "attempt": 1, "lease": 60}

    def get(self, request: str, **fields: Any) -> dict[str, Any]:
        self.asked.append(fields)
        if fields:
            raise Invalid("wait: unknown parameter", status=422)
        return {"id": request, "status": self.statuses.pop(0)}


def test_the_pause_is_made_here_where_the_server_holds_nothing_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers, paused = _Answers("queued", "queued", "allocated"), []
    stop = threading.Event()
    monkeypatch.setattr(stop, "wait", lambda seconds: paused.append(seconds))
    request = {"id": "r", "status": "queued", "lease": 60}
    client: Any = SimpleNamespace(requests=answers)
    found = wait_for_grant(client, request, sent_at=0.0, interrupted=stop)
    assert found.request["status"] == "allocated"
    # About half a second to a second, then up to two: the back-off as it has always been.
    assert len(paused) == 2 and 0 < paused[0] <= 1 and paused[1] <= 2
    # To a holder's question an older server would hold back the grant.
    assert {each["hint"] for each in answers.asked} == {waiting.NO_HINT}
    assert "attempt" not in answers.asked[0]


def test_an_older_server_is_asked_as_it_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(work.time, "sleep", slept.append)
    answers = _Answers("queued", "queued", "queued", "released")
    client: Any = SimpleNamespace(requests=answers)
    assert [each["status"] for each in work.wait_for_end(client, ["r"], list)] == ["released"]
    assert slept == [work.GAP_FIRST, work.GAP_FIRST * 1.5]


def test_a_holder_without_a_checkpoint_has_its_answers_held_back_too() -> None:
    answers = _Answers("allocated")
    held = {"id": "r", "status": "allocated", "attempt": 1, "lease": 600, "checkpoint": "none"}
    client: Any = SimpleNamespace(requests=answers)
    kept = lease.Lease(client, held, sent_at=0.0)
    kept._renew_once(0.0)
    assert answers.asked[0]["wait"] == lease.INTERVAL_MOST
    assert answers.asked[0]["attempt"] == 1

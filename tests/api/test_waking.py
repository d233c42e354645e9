"""Whoever waits for a request hears of it when it is committed, and costs nothing meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from cede.model import bounds
from cede.server.api.limits import Gate
from tests.api.conftest import PATIENCE, Server, made

API = "/api/v1"
Eventually = Callable[[Callable[[], bool]], None]


@pytest.fixture(autouse=True)
def nothing_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is held back for longer than a test comes because of news, or never."""
    monkeypatch.setattr(bounds, "NEWS_WAIT_MAX", 1000 * 1000 * PATIENCE)


class Held:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.answer: Any = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.answer = self._call()

    def is_held(self) -> bool:
        return self._thread.is_alive()

    def ended(self) -> Any:
        self._thread.join(PATIENCE)
        assert not self.is_held(), "the answer was not given"
        return self.answer


@pytest.fixture
def waiter(any_server: Server) -> tuple[Server, dict[str, Any], dict[str, Any]]:
    """A server, a request that holds everything, and one that waits for it."""
    any_server.pool("gpus", 1)
    any_server.policy("red", priority=1)
    holder, waiter = any_server.submit("red", 1), any_server.submit("red", 1)
    assert (holder["status"], waiter["status"]) == ("allocated", "queued")
    return any_server, holder, waiter


def standing(server: Server, request: dict[str, Any]) -> bool:
    return request["id"] in server.writer.order_board._waiting


def renewing(server: Server, request: dict[str, Any], **fields: Any) -> Held:
    path = f"{API}/requests/{request['id']}/renew"
    body = {"wait": 40, **fields}
    return Held(lambda: made(server["red"].post(path, json=body)))


def looking(server: Server, request: dict[str, Any], known: str, who: str = "viewer") -> Held:
    path, params = f"{API}/requests/{request['id']}", {"wait": 40, "known": known}

    def look() -> httpx2.Response:
        # A client of its own: several at once would leave connections open in a shared one.
        with server.client(server.secrets[who]) as client:
            return client.get(path, params=params)

    return Held(look)


def released(server: Server, request: dict[str, Any]) -> None:
    made(server["red"].post(f"{API}/requests/{request['id']}/release", json={"attempt": 1}))


def test_a_waiters_renewal_is_answered_by_its_grant(
    waiter: tuple[Server, dict[str, Any], dict[str, Any]], eventually: Eventually
) -> None:
    server, holder, waits = waiter
    held = renewing(server, waits)
    eventually(lambda: standing(server, waits))
    # Another renewal writes its row again, and is no news.
    made(server["red"].post(f"{API}/requests/{waits['id']}/renew", json={}))
    assert held.is_held()
    released(server, holder)
    answer = held.ended()
    assert answer["status"] == "allocated" and answer["attempt"] == 1
    assert not standing(server, waits)


def test_a_waiter_that_was_granted_meanwhile_is_answered_at_once(
    waiter: tuple[Server, dict[str, Any], dict[str, Any]],
) -> None:
    server, holder, waits = waiter
    released(server, holder)
    assert renewing(server, waits).ended()["status"] == "allocated"


def test_a_waiter_that_is_cancelled_hears_of_it(
    waiter: tuple[Server, dict[str, Any], dict[str, Any]], eventually: Eventually
) -> None:
    server, _, waits = waiter
    held = renewing(server, waits)
    eventually(lambda: standing(server, waits))
    made(server["admin"].post(f"{API}/requests/{waits['id']}/cancel", json={}))
    assert held.ended()["status"] == "cancelled"


def test_a_look_is_answered_when_the_status_is_another(
    waiter: tuple[Server, dict[str, Any], dict[str, Any]], eventually: Eventually
) -> None:
    server, holder, waits = waiter
    assert looking(server, waits, "allocated").ended().json()["status"] == "queued"
    held, end = looking(server, waits, "queued"), looking(server, holder, "allocated")
    eventually(lambda: standing(server, waits) and standing(server, holder))
    released(server, holder)
    assert held.ended().json()["status"] == "allocated"
    assert end.ended().json()["status"] == "released"
    # It has ended: there is nothing to wait for.
    assert looking(server, holder, "released").ended().json()["status"] == "released"


def test_looks_that_wait_take_no_place_of_calls_that_work(
    waiter: tuple[Server, dict[str, Any], dict[str, Any]], eventually: Eventually
) -> None:
    server, holder, waits = waiter
    server.app.state.cede.gate = Gate(most=1)
    several = [looking(server, waits, "queued") for _ in range(4)]
    eventually(lambda: len(server.writer.order_board._waiting.get(waits["id"], ())) == 4)
    assert server["viewer"].get(f"{API}/pools").status_code == 200
    released(server, holder)
    assert {each.ended().json()["status"] for each in several} == {"allocated"}
    assert server.app.state.cede.gate._free == 1  # each gave back what it had taken


def test_a_token_that_is_revoked_meanwhile_reads_nothing(
    waiter: tuple[Server, dict[str, Any], dict[str, Any]], eventually: Eventually
) -> None:
    server, holder, waits = waiter
    held = looking(server, waits, "queued", who="red-viewer")
    eventually(lambda: standing(server, waits))
    (token,) = [
        each
        for each in made(server["admin"].get(f"{API}/tokens"))["items"]
        if each["name"] == "red-viewer"
    ]
    assert server["admin"].delete(f"{API}/tokens/{token['id']}").status_code == 204
    released(server, holder)
    assert held.ended().status_code == 401

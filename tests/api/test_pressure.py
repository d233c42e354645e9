"""Under pressure the server says so, with the bound and the time to try again (C10)."""

from __future__ import annotations

from typing import NoReturn

import pytest

from cede.server.api.limits import Limiter
from cede.server.queue import Overloaded, Stopping
from tests.api.conftest import Server, made

API = "/api/v1"


def allow(server: Server, burst: int) -> None:
    """What each may spend now; however slow this machine is, nothing comes back."""
    context = server.app.state.cede
    context.limiter = Limiter(rate=1, burst=burst)
    context.monotonic = lambda: 0.0


def test_a_token_that_asks_too_much_is_429_and_can_still_renew(server: Server) -> None:
    server.pool("gpus", 8)
    server.policy("red", reserved={"gpu": 4})
    request = server.submit("red", 1)
    allow(server, burst=20)
    answers = [server["red"].get(f"{API}/requests") for _ in range(20)]
    refused = answers[-1]
    assert refused.status_code == 429
    assert "1 cost units a second, 20 at once" in refused.json()["detail"]
    assert int(refused.headers["retry-after"]) >= 1
    # A storm of other calls must not make leases run out.
    made(server["red"].post(f"{API}/requests/{request['id']}/renew"))
    # Nor is it anybody else's storm.
    assert server["blue"].get(f"{API}/requests").status_code == 200


def test_guessing_tokens_is_limited_by_address(server: Server) -> None:
    allow(server, burst=100)
    statuses = [server["nobody"].get(f"{API}/pools").status_code for _ in range(20)]
    assert statuses[0] == 401 and statuses[-1] == 429
    assert server["nobody"].get("/healthz").status_code == 200
    assert server["admin"].get(f"{API}/pools").status_code == 200


@pytest.mark.parametrize("error", [Overloaded(20_000), Stopping()])
def test_a_writer_that_takes_no_more_is_503(
    server: Server, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    server.pool("gpus", 1)
    server.policy("red", reserved={"gpu": 1})
    server.submit("red", 1)
    waiting = server.submit("red", 1)

    def refuse(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr(server.writer, "run", refuse)
    monkeypatch.setattr(server.writer, "ask", refuse)
    response = server["red"].post(f"{API}/requests", json={})
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1
    # Reads go on without the writer.
    shown = made(server["red"].get(f"{API}/requests/{waiting['id']}"))
    assert shown["status"] == "queued"


def test_a_server_without_a_writer_is_not_healthy(server: Server) -> None:
    server.writer.stop()
    assert server["nobody"].get("/healthz").status_code == 503

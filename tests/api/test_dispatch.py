"""Calls reach their handlers past FastAPI's layers: by every check, and with the same words."""

from __future__ import annotations

import asyncio

import pytest

from tests.api.conftest import Server


def test_no_route_can_be_reached_past_the_checks(server: Server) -> None:
    """Were FastAPI's own router ever to find a route of ours, nobody would have looked at who is
    calling.
    """

    async def answers(scope: dict[str, object]) -> None:
        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: object) -> None: ...

        await server.app.elsewhere(scope, receive, send)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/version",
        "headers": [],
        "query_string": b"",
    }
    with pytest.raises(AssertionError, match="was not dispatched"):
        asyncio.run(answers({**scope, "http_version": "1.1", "scheme": "http", "root_path": ""}))


def test_no_such_path_and_no_such_method(server: Server) -> None:
    nowhere = server["admin"].get("/api/v1/pool")
    assert (nowhere.status_code, nowhere.json()["type"]) == (404, "urn:cede:problem:not_found")
    wrong = server["admin"].put("/api/v1/pools")
    assert wrong.status_code == 405
    assert "GET" in wrong.headers["allow"]
    assert server["admin"].get("/api/v1/pools/").status_code == 404


def test_a_body_that_is_not_in_order_is_refused_by_its_field(server: Server) -> None:
    wrong = server["admin"].post("/api/v1/pools", json={"name": "gpus", "capacity": {"gpu": "8"}})
    assert wrong.status_code == 422
    assert wrong.json()["field"] == "capacity.gpu"
    empty = server["admin"].post("/api/v1/pools")
    assert empty.status_code == 422
    other = server["admin"].get("/api/v1/requests", params={"limit": "none"})
    assert (other.status_code, other.json()["field"]) == (422, "limit")


def test_a_body_without_a_media_type_or_with_a_long_one_is_read(server: Server) -> None:
    server.pool("gpus")
    server.policy("red")
    for media_type in ("application/json; charset=utf-8", "application/problem+json"):
        answer = server["red"].post(
            "/api/v1/requests",
            content=b'{"resources": {"gpu": 1}}',
            headers={"Content-Type": media_type},
        )
        assert answer.status_code == 201, answer.text

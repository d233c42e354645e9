"""The journal over HTTP: pages, and a stream that can be taken up again at any index."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cede.server.api import events
from cede.server.api.app import close_streams
from tests.api.conftest import Server, made, running

API = "/api/v1"


def ready(server: Server) -> Server:
    server.pool("gpus", 8)
    server.policy("red", reserved={"gpu": 4})
    server.policy("blue", reserved={"gpu": 4})
    return server


def page(server: Server, who: str = "admin", query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = made(server[who].get(f"{API}/events?limit=500{query}"))["items"]
    return found


def read(lines: Iterator[str], number: int) -> list[dict[str, Any]]:
    """The next events of a stream, each with the id that the stream gave it."""
    found: list[dict[str, Any]] = []
    id_ = ""
    for line in lines:
        if line.startswith("id: "):
            id_ = line[4:]
        elif line.startswith("data: "):
            event = json.loads(line[6:])
            assert str(event["index"]) == id_
            found.append(event)
            if len(found) == number:
                return found
    return found


def test_pages_go_on_from_an_index(server: Server) -> None:
    ready(server)
    everything = page(server)
    assert [each["kind"] for each in everything] == [
        "pool_created",
        "policy_attached",
        "policy_attached",
    ]
    first = made(server["admin"].get(f"{API}/events?limit=2"))
    rest = made(server["admin"].get(f"{API}/events?after={first['next']}"))
    assert first["items"] + rest["items"] == everything
    empty = made(server["admin"].get(f"{API}/events?after=100000"))
    assert empty == {"items": [], "next": 100000}


def test_pages_go_back_from_an_index(any_server: Server) -> None:
    server = ready(any_server)
    request = server.submit("red", 1)
    everything = page(server)
    end = everything[-1]["index"] + 1
    last = made(server["admin"].get(f"{API}/events?before={end}&limit=2"))["items"]
    rest = made(server["admin"].get(f"{API}/events?before={last[0]['index']}"))["items"]
    assert len(last) == 2 and rest + last == everything
    asked = f"{API}/events?before={end}&request_id={request['id']}"
    assert [each["kind"] for each in made(server["red"].get(asked))["items"]] == [
        "submitted",
        "granted",
    ]
    # A bound token sees what concerns its own requests only, backwards as forwards.
    assert made(server["blue"].get(f"{API}/events?before={end}"))["items"] == []
    assert made(server["admin"].get(f"{API}/events?before=0"))["items"] == []
    for other in ("after=1", "follow=true"):
        answer = server["admin"].get(f"{API}/events?before=3&{other}")
        assert (answer.status_code, answer.json()["field"]) == (422, "before")


def test_a_stream_sends_what_happened_and_what_happens(any_server: Server) -> None:
    server = ready(any_server)
    headers = {"Accept": "text/event-stream"}
    with server["admin"].stream("GET", f"{API}/events?after=0", headers=headers) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        past = read(lines, 3)
        request = server.submit("red", 1)
        coming = read(lines, 2)
    assert past == page(server)[:3]
    assert [each["kind"] for each in coming] == ["submitted", "granted"]
    assert {each["request_id"] for each in coming} == {request["id"]}


def test_a_stream_is_taken_up_again_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'cede.db'}"
    with running(url) as server:
        ready(server)
        with server["admin"].stream("GET", f"{API}/events?follow=true&after=0") as stream:
            seen = read(stream.iter_lines(), 2)
    with running(url) as server:
        server.submit("red", 1)
        headers = {"Last-Event-ID": str(seen[-1]["index"])}
        query = f"{API}/events?follow=true"
        with server["admin"].stream("GET", query, headers=headers) as stream:
            seen += read(stream.iter_lines(), 3)
        assert seen == page(server)
    indexes = [each["index"] for each in seen]
    assert indexes == sorted(set(indexes))


def test_a_stream_without_an_index_starts_now(server: Server) -> None:
    ready(server)
    with server["red"].stream("GET", f"{API}/events?follow=true") as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith(": from ")
        server.submit("blue", 1)
        mine = server.submit("red", 1)
        assert {each["request_id"] for each in read(lines, 2)} == {mine["id"]}


def test_a_stream_can_be_narrowed(server: Server) -> None:
    ready(server)
    wanted, other = server.submit("red", 1), server.submit("red", 1)
    for query, number in ((f"&request_id={wanted['id']}", 2), ("&pool=gpus", 5)):
        assert len(page(server, query=query)) == number
    assert other["id"] not in str(page(server, query=f"&request_id={wanted['id']}"))


def test_a_silent_stream_still_says_something(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(events, "POLL_SECONDS", 0.05)
    with server["admin"].stream("GET", f"{API}/events?follow=true") as stream:
        assert any(line == ": still here" for line in stream.iter_lines())


def test_streams_end_with_the_server_and_with_their_token(server: Server) -> None:
    made_token = made(server["admin"].post(f"{API}/tokens", json={"name": "t", "role": "viewer"}))
    client = server.client(made_token["token"])
    with client, client.stream("GET", f"{API}/events?follow=true") as stream:
        lines = stream.iter_lines()
        next(lines)
        server["admin"].delete(f"{API}/tokens/{made_token['id']}")
        assert list(lines) == [""], "a revoked token went on reading"
    with server["admin"].stream("GET", f"{API}/events?follow=true") as stream:
        lines = stream.iter_lines()
        next(lines)
        threading.Timer(0.2, close_streams, [server.app]).start()
        assert list(lines) == [""], "the stream outlived the server"


def test_too_many_streams_are_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "STREAMS_MAX", 0)
    response = server["admin"].get(f"{API}/events?follow=true")
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")


@pytest.mark.parametrize("bad", ["-1", "x", "9" * 30])
def test_a_bad_last_event_id_is_refused(server: Server, bad: str) -> None:
    headers = {"Last-Event-ID": bad}
    response = server["admin"].get(f"{API}/events?follow=true", headers=headers)
    assert response.status_code == 422

"""Answers that are shared are never older than what their askers know of."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from cede.server.api import kept
from cede.server.api.kept import Kept
from tests.api.conftest import Server, made

API = "/api/v1"


class Maker:
    """Counts how often it was asked to make an answer, and waits to be let go."""

    def __init__(self) -> None:
        self.times = 0
        self.go = asyncio.Event()

    async def __call__(self) -> bytes:
        self.times += 1
        number = self.times
        await self.go.wait()
        return str(number).encode()


def shared() -> tuple[Any, Kept]:
    server = SimpleNamespace(commits=0, seconds=0.0)
    return server, Kept(server, lambda: server.seconds)  # type: ignore[arg-type]


def test_equal_askers_share_what_is_being_made_until_something_is_committed() -> None:
    async def run() -> None:
        server, answers = shared()
        make = Maker()
        early = [asyncio.ensure_future(answers.get(("a",), make)) for _ in range(3)]
        await asyncio.sleep(0)
        server.commits += 1  # and somebody was told of it before asking
        late = asyncio.ensure_future(answers.get(("a",), make))
        await asyncio.sleep(0)
        early[0].cancel()  # the others get theirs
        make.go.set()
        assert [await each for each in early[1:]] == [b"1", b"1"]
        assert await late == b"2" and make.times == 2

    asyncio.run(run())


def test_they_are_made_again_after_a_second_and_when_they_failed_or_are_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        server, answers = shared()
        make = Maker()
        make.go.set()
        assert await answers.get(("a",), make) == await answers.get(("a",), make) == b"1"
        server.seconds = kept.KEPT_SECONDS + 0.1
        assert await answers.get(("a",), make) == b"2"

        async def fails() -> bytes:
            raise LookupError

        for _ in range(2):
            with pytest.raises(LookupError):
                await answers.get(("b",), fails)
        assert await answers.get(("b",), make) == b"3"
        monkeypatch.setattr(kept, "BODY_BYTES_MAX", 0)
        assert await answers.get(("c",), make) == b"4"
        await asyncio.sleep(0)
        assert await answers.get(("c",), make) == b"5"
        for number in range(3 * kept.KEPT_MAX):
            await answers.get((number,), make)
        assert len(answers._answers) <= kept.KEPT_MAX

    asyncio.run(run())


def test_whoever_submitted_sees_it_in_the_next_answer(server: Server) -> None:
    server.pool("gpus", 4)
    server.policy("red")
    for number in range(1, 9):
        server.submit("red", 1)
        pool = server["viewer"].get(f"{API}/pools/gpus").json()
        assert pool["active"] + pool["queued"] == number
        page = server["viewer"].get(f"{API}/requests").json()
        assert len(page["items"]) == number


def test_who_may_see_less_is_shown_less(server: Server) -> None:
    server.pool("gpus", 4)
    server.policy("red")
    server.policy("blue")
    mine = server.submit("red", 1)
    path = f"{API}/requests/{mine['id']}"
    assert server["viewer"].get(path).status_code == 200
    assert server["blue"].get(path).status_code == 404
    assert server["red"].get(path).status_code == 200
    assert server["blue"].get(f"{API}/requests").json()["items"] == []
    theirs = made(
        server["blue"].post(
            f"{API}/requests",
            json={"resources": {"gpu": 1}, "component": "blue", "component_type": "team"},
        )
    )
    with ThreadPoolExecutor(2) as callers:
        last = callers.map(lambda who: server[who].get(f"{API}/requests/last"), ("red", "blue"))
        found = [each.json().get("id") for each in last]
    assert found[1] == theirs["id"] and found[0] != theirs["id"]

"""Answers that are shared are never older than what their askers know of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Semaphore
from types import SimpleNamespace
from typing import Any

import pytest

from cede.server.api import shared
from cede.server.api.shared import Shared
from tests.api.conftest import Server, made

API = "/api/v1"


class Maker:
    """Counts how often it was asked to make an answer, and waits to be let go."""

    def __init__(self, *, goes: bool = False) -> None:
        self.times = 0
        self.go = asyncio.Event()
        if goes:
            self.go.set()

    async def __call__(self) -> bytes:
        self.times += 1
        number = self.times
        await self.go.wait()
        return str(number).encode()


def sharing() -> tuple[Any, Shared]:
    server = SimpleNamespace(commits=0, seconds=0.0)
    return server, Shared(server, lambda: server.seconds)  # type: ignore[arg-type]


def test_who_asks_while_an_answer_is_made_gets_the_next_one() -> None:
    async def run() -> None:
        server, answers = sharing()
        make = Maker()
        early = [asyncio.ensure_future(answers.ask(("a",), make)) for _ in range(3)]
        while not make.times:
            await asyncio.sleep(0)
        server.commits += 1  # and somebody was told of it before asking
        late = [asyncio.ensure_future(answers.ask(("a",), make)) for _ in range(3)]
        await asyncio.sleep(0)
        early[0].cancel()  # the others get theirs
        make.go.set()
        assert [await each for each in early[1:]] == [b"1", b"1"]
        assert [await each for each in late] == [b"2", b"2", b"2"]

    asyncio.run(run())


def test_an_answer_is_good_for_a_second_if_nothing_is_committed() -> None:
    async def run() -> None:
        server, answers = sharing()
        make = Maker(goes=True)
        assert await answers.ask(("a",), make) == await answers.ask(("a",), make) == b"1"
        server.seconds = shared.KEPT_SECONDS + 0.1
        assert await answers.ask(("a",), make) == b"2"
        server.commits += 1
        assert await answers.ask(("a",), make) == b"3"
        server.commits += 1
        assert await answers.ask(("a",), make) == b"4"

    asyncio.run(run())


def test_what_nobody_asks_for_any_more_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "KEPT_SECONDS", 0.0)

    async def run() -> None:
        server, answers = sharing()
        assert await answers.ask(("a",), Maker(goes=True)) == b"1" and answers._made
        server.seconds = 1.0
        async with asyncio.timeout(60):
            while answers._made:
                await asyncio.sleep(0.01)

    asyncio.run(run())


def test_what_failed_or_is_long_is_not_kept_and_all_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        _, answers = sharing()
        make = Maker(goes=True)

        async def fails() -> bytes:
            raise LookupError

        for _ in range(2):
            with pytest.raises(LookupError):
                await answers.ask(("b",), fails)
        assert await answers.ask(("b",), make) == b"1"
        with monkeypatch.context() as patched:
            patched.setattr(shared, "KEPT_BYTES_MAX", 0)
            assert await answers.ask(("c",), make) == b"2"
            assert await answers.ask(("c",), make) == b"3"
        for number in range(3 * shared.KEPT_MAX):
            await answers.ask((number,), make)
        assert len(answers._made) <= shared.KEPT_MAX
        monkeypatch.setattr(shared, "ANSWERS_MAX", 0)
        before = make.times
        await asyncio.gather(*(answers.ask(("new", n), make) for n in range(5)))
        assert make.times == before + 5

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


def test_reports_are_made_one_at_a_time_and_no_read_waits_for_them(
    server: Server,
    eventually: Callable[[Callable[[], bool]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One over a million ended requests takes seconds: two of them kept all reads waiting."""
    usage, turn, go = server.store.usage, Semaphore(1), Event()
    begun: list[Any] = []

    def held_up(by: Any, *args: Any, **more: Any) -> Any:
        begun.append(by)
        assert turn.acquire(blocking=False)
        assert go.wait(60)
        turn.release()
        return usage(by, *args, **more)

    monkeypatch.setattr(server.store, "usage", held_up)
    admin = server["admin"]
    with ThreadPoolExecutor(8) as pool:
        asked = [
            pool.submit(admin.get, f"{API}/usage?by={by}") for by in ("team", "user", "pool") * 2
        ]
        try:
            eventually(lambda: bool(begun))
            assert made(admin.get(f"{API}/requests"))["items"] == []
        finally:
            go.set()
        assert [each.result().status_code for each in asked] == [200] * 6

"""The hand-over between callers and the writer."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest

from cede.server.queue import Job, Queue


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> tuple[Queue, list[int]]:
    """A queue, and how long it was whenever the writer was woken."""
    queue, seen = Queue(100), []  # type: ignore[var-annotated]
    monkeypatch.setattr(queue._ready, "notify", lambda: seen.append(len(queue)))
    return queue, seen


def test_whoever_calls_in_one_turn_of_the_loop_wakes_the_writer_once(
    woken: tuple[Queue, list[int]],
) -> None:
    queue, seen = woken

    async def calls() -> None:
        async def call() -> None:
            queue.put(_job(asyncio.get_running_loop().create_future()))

        for _ in range(2):
            await asyncio.gather(*(call() for _ in range(8)))
            await asyncio.sleep(0)

    asyncio.run(calls())
    assert seen == [8, 16]


def test_a_thread_wakes_the_writer_itself(woken: tuple[Queue, list[int]]) -> None:
    queue, seen = woken
    queue.put(_job(Future()))
    assert seen == [1]


def _job(future: Any) -> Job:
    return Job(lambda: None, future)

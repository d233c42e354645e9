"""Streams that follow the same share what is read and encoded for them, and miss nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from cede.server.api.feed import PIECES_MAX, Feed
from tests.api.conftest import Server

API = "/api/v1"


def test_what_comes_next_is_read_once_for_all() -> None:
    times = 0

    async def read() -> list[dict[str, Any]]:
        nonlocal times
        times += 1
        await asyncio.sleep(0)
        return [{"index": 5, "kind": "granted", "text": "é"}]

    async def run() -> None:
        feed = Feed()
        found = await asyncio.gather(*(feed.after(("all",), 3, 6, read) for _ in range(20)))
        assert times == 1 and len(set(found)) == 1
        assert (found[0].events, found[0].last) == (1, 6)
        assert found[0].text.decode().startswith("id: 5\nevent: granted\ndata: {")
        await feed.after(("red",), 3, 6, read)
        await feed.after(("all",), 6, 7, read)
        assert times == 3, "another scope and another place are other pieces"
        for index in range(100, 100 + PIECES_MAX):
            await feed.after(("all",), index, index, read)
        assert len(feed._pieces) == PIECES_MAX

    asyncio.run(run())


def test_a_read_that_fails_is_tried_again() -> None:
    async def broken() -> list[dict[str, Any]]:
        raise OSError

    async def whole() -> list[dict[str, Any]]:
        return []

    async def run() -> None:
        feed = Feed()
        with pytest.raises(OSError):
            await feed.after((), 0, 1, broken)
        assert (await feed.after((), 0, 1, whole)).last == 1

    asyncio.run(run())


def test_many_streams_get_every_event_in_order(server: Server) -> None:
    server.pool("gpus", 8)
    server.policy("red")
    streams = [server["admin"].stream("GET", f"{API}/events?follow=true") for _ in range(4)]
    lines: list[Iterator[str]] = []
    try:
        for stream in streams:
            lines.append(stream.__enter__().iter_lines())
            assert next(lines[-1]).startswith(": from ")
        ids = [server.submit("red", 1)["id"] for _ in range(10)]
        found = [_submitted(each, ids[-1]) for each in lines]
    finally:
        for stream in streams:
            stream.__exit__(None, None, None)
    assert found == [ids] * 4


def _submitted(lines: Iterator[str], last: str) -> list[str]:
    """The requests that a stream told of, up to one."""
    found: list[str] = []
    for line in lines:
        if line.startswith("data: ") and '"kind":"submitted"' in line:
            found.append(line.split('"request_id":"')[1][:36])
            if found[-1] == last:
                break
    return found

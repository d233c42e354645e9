"""Requests that have ended leave nothing behind in the server's memory."""

from __future__ import annotations

import gc
from collections import Counter, deque
from pathlib import Path
from typing import Any

from cede.store import connect
from tests.api.conftest import Server, made

ROUND = 150


def live_and_end(server: Server, count: int) -> None:
    for number in range(count):
        labels = {"run": f"{number}"}
        held = server.submit("red", labels=labels)
        path = f"/api/v1/requests/{held['id']}"
        headers = {"Idempotency-Key": held["id"]}
        made(server["red"].post(f"{path}/renew", json={}))
        made(server["red"].post(f"{path}/release", json={}, headers=headers))
        made(server["red"].get(path))


def retained() -> Counter[str]:
    """How many objects of ours there are by kind, and how much is in containers of any kind."""
    gc.collect()
    found: Counter[str] = Counter()
    for each in gc.get_objects():
        kind: type[Any] = type(each)
        if str(kind.__module__).startswith("cede."):
            found[kind.__qualname__] += 1
        elif kind in (dict, list, set, deque):
            found["in containers"] += len(each)
    return found


def test_ended_requests_leave_nothing_behind(server: Server) -> None:
    server.pool()
    server.policy("red", priority=1)
    live_and_end(server, ROUND)  # what is cached is cached now
    before = retained()
    live_and_end(server, 2 * ROUND)
    grown = retained()
    grown.subtract(before)
    # One thing for each request would be a leak, and twice as much; the tests' own things vary.
    assert {kind: more for kind, more in grown.items() if more > ROUND} == {}


def test_what_connections_keep_for_themselves_is_bounded(tmp_path: Path) -> None:
    """SQLite's caches fill over days; together they are the most that a server grows by."""
    url = connect.parse_url(f"sqlite:///{tmp_path / 'cede.db'}")
    sizes = []
    for engine in (connect.write_engine(url), connect.read_engine(url)):
        with engine.connect() as connection:
            sizes.append(-connection.exec_driver_sql("PRAGMA cache_size").scalar_one())
        engine.dispose()
    assert sizes == [connect.WRITER_CACHE, connect.READER_CACHE]
    assert connect.WRITER_CACHE + connect.READERS * connect.READER_CACHE <= 64 * 1024

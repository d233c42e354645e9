"""Requests that have ended leave nothing behind in the server's memory."""

from __future__ import annotations

import gc
from collections import Counter, deque
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

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


@pytest.mark.slow
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


def test_calls_leave_no_garbage_that_must_be_looked_for(server: Server) -> None:
    """Bodies and what was read of them would stay until the collector looks at everything, and keep
    the memory around them.
    """
    server.pool()
    server.policy("red", priority=1)
    red, path = server["red"], "/api/v1/requests"
    calls = [
        lambda: red.post(path, json={"resources": {"gpu": 1}, "nonsense": 1}),
        lambda: red.post(path, content=b'{"gpu": 1, "gpu": 2, "pad": "' + b"x" * 100_000 + b'"}'),
        lambda: red.post(f"{path}/bulk", json={"requests": [{"resources": {"gpu": 1}, "x": 1}]}),
        lambda: red.get(f"{path}?limit=500&explain=true"),
        lambda: red.get("/api/v1/pools/none"),
        lambda: server["nobody"].get(path),
    ]
    assert {call().status_code for call in calls} <= {200, 400, 401, 404, 422}
    gc.collect()
    gc.disable()
    # The server of an earlier test may go only now: held, it is no garbage of these calls.
    earlier = gc.get_objects()
    try:
        for call in 3 * calls:
            call()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        ours = {
            type(each).__qualname__
            for each in gc.garbage
            if isinstance(each, Exception) or type(each).__module__.startswith("cede.server.api")
        }
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        earlier.clear()
        gc.enable()
    assert ours == set()


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


def test_connections_that_rest_let_go_of_what_they_keep(server: Server) -> None:
    shrunk: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement == "PRAGMA shrink_memory":
            shrunk.append(statement)

    readers = server.store._readers
    resting = readers.pool.checkedin()  # type: ignore[attr-defined]
    event.listen(readers, "before_cursor_execute", note)
    server.store.give_back_memory()
    assert len(shrunk) == resting > 0
    assert server["admin"].get("/api/v1/pools").status_code == 200

"""A writer around a fresh database, and commands that tests give it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cede.engine.admin.edits import attach_policy, create_pool
from cede.engine.lifecycle.commands import Submission, release, submit
from cede.model.request import Request
from cede.model.subject import Subject
from cede.server.ids import new_id
from cede.server.tx import Tx
from cede.server.writer import Writer
from cede.store import Idempotency, Store
from tests.store.samples import started

RED = Subject("team", "red")
PATIENCE = 60  # seconds that anything may take before a test gives up


class Died(Exception):
    """What a test gets instead of the end of the process."""


class Deaths(list[BaseException]):
    """Collects what would have ended the process."""

    def __init__(self) -> None:
        super().__init__()
        self.happened = threading.Event()

    def __call__(self, error: BaseException) -> None:
        self.append(error)
        self.happened.set()


@contextmanager
def running(url: str, **more: Any) -> Iterator[tuple[Store, Writer]]:
    anchor = more.pop("anchor", None)
    store, loaded = started(url, anchor=anchor)
    deaths = Deaths()
    writer = Writer(store, loaded, **({"on_fatal": deaths} | more))
    writer.start()
    try:
        yield store, writer
    finally:
        writer.stop(PATIENCE)
        store.close()
    assert not deaths, deaths


def make_pool(gpus: int = 8) -> Callable[[Tx], str]:
    """A pool in which team red may have everything."""

    def command(tx: Tx) -> str:
        pool = create_pool(tx.state, id=new_id(), name="gpus", capacity={"gpu": gpus})
        amounts = {"gpu": gpus}
        attach_policy(
            tx.state, id=new_id(), pool_id=pool.id, subject=RED, priority=1, reserved=amounts
        )
        return pool.id

    return command


def ask_for(gpus: int, id: str | None = None, **more: Any) -> Callable[[Tx], str]:
    """Submit a request of team red; gives its id."""

    def command(tx: Tx) -> str:
        given = Submission(id or new_id(), RED, {"gpu": gpus}, **({"lease": None} | more))
        request = submit(tx.state, given, tx.now)
        assert isinstance(request, Request)
        return request.id

    return command


def give_back(request_id: str) -> Callable[[Tx], str]:
    return lambda tx: release(tx.state, request_id, tx.now).id


def key(name: str, body: str = "body", token: str = "token-1") -> Idempotency:
    return Idempotency(name, "POST /api/v1/requests", token, body)


def until(true: Callable[[], Any], what: str = "it") -> Any:
    """Poll until something is true; say what was not."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := true():
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not happen within {PATIENCE} seconds")

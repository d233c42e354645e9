"""A server that cannot write: nothing is half done, leases go on, and it says why."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from cede.engine.audit import audit
from cede.engine.lifecycle.commands import renew
from cede.model import bounds
from cede.server import scrub as scrub_module
from cede.server.leadership import Leadership, NotLeading
from cede.server.queue import Job
from cede.server.scrub import Scrub
from cede.server.tx import Tx
from cede.server.writer import Writer
from cede.store import Damaged, DiskFull, Store, connect
from tests.server.helpers import PATIENCE, ask_for, give_back, make_pool, running, until
from tests.store.samples import batch, changes, policy, pool, request, started, token


def tamper(url: str, statement: str) -> None:
    """As a disk would, except that the database itself is sound."""
    engine = create_engine(connect.parse_url(url))
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def renewed(writer: Writer, request_id: str) -> Any:
    """The lease of a waiter, renewed by a command that need not last."""

    def command(tx: Tx) -> int | None:
        return renew(tx.state, request_id, tx.now).lease_until

    job = Job(command, Future(), lasting=False)
    writer._queue.put(job)
    return job.future.result(PATIENCE)  # type: ignore[call-arg]


def fails(monkeypatch: pytest.MonkeyPatch, store: Store) -> Callable[[], None]:
    """From now on every commit finds no space at its very end; gives what ends that."""
    full = threading.Event()
    full.set()

    def at_point(point: str) -> None:
        if point == "during_commit" and full.is_set():
            raise DiskFull

    monkeypatch.setattr(store, "at_point", at_point)
    return full.clear


def test_without_space_nothing_is_half_done(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(database_url) as (store, writer):
        writer.execute(make_pool(8)).result(PATIENCE)
        holder = writer.execute(ask_for(8)).result(PATIENCE)
        waiter = writer.execute(ask_for(2, lease=60_000)).result(PATIENCE)
        before = store.head()
        make_space = fails(monkeypatch, store)
        with pytest.raises(DiskFull):
            writer.execute(ask_for(1)).result(PATIENCE)
        assert isinstance(writer.unwritable, DiskFull)
        first, second = renewed(writer, waiter), renewed(writer, waiter)
        assert second >= first > 0
        state = writer.query(lambda state, _: (sorted(state.requests), audit.check(state)))
        assert state.result(PATIENCE) == (sorted([holder, waiter]), [])
        assert store.head() == before
        make_space()
        until(lambda: writer.unwritable is None, "recovery")
        until(lambda: store.get_request(waiter).request.lease_until == second, "the renewed lease")
        assert writer.execute(ask_for(1)).result(PATIENCE)
    store, loaded = started(database_url)
    assert len(loaded.state.requests) == 3
    assert store.scrub() == []
    store.close()


def test_a_term_that_cannot_be_renewed_without_space_ends(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(database_url) as (store, writer):
        writer.execute(make_pool(8)).result(PATIENCE)

        def renew_lease() -> None:
            raise DiskFull

        monkeypatch.setattr(store, "renew_lease", renew_lease)
        make_space = fails(monkeypatch, store)
        writer.leadership = Leadership(bounds.HOUR)  # a long term, over until it is renewed
        with pytest.raises(DiskFull):
            writer.execute(ask_for(1)).result(PATIENCE)
        writer._renew(writer.now())
        with pytest.raises(NotLeading):
            writer.leadership.require()
        make_space()
        until(lambda: writer.unwritable is None, "recovery")
        writer.leadership.require()  # a commit renews it


def test_damage_is_found_by_the_scrub_and_nothing_is_written_on_top(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(database_url) as (store, writer):
        writer.execute(make_pool(8)).result(PATIENCE)
        writer.execute(ask_for(7)).result(PATIENCE)
        done = writer.execute(ask_for(1)).result(PATIENCE)
        waiter = writer.execute(ask_for(8, lease=60_000)).result(PATIENCE)
        scrub = Scrub(store, writer.found_damage)
        scrub.first()
        tamper(database_url, "UPDATE requests SET owner = 'mallory'")
        scrub.first()  # what is alive is verified when it is loaded, and later
        writer.execute(give_back(done)).result(PATIENCE)
        tamper(database_url, "UPDATE requests SET owner = 'mallory' WHERE status = 'released'")
        with pytest.raises(Damaged, match="a changed row among its 1 ended rows"):
            scrub.first()
        assert writer.unwritable is None
        monkeypatch.setattr(scrub_module, "START_ROWS_MAX", 0)
        scrub.first()  # large tables are left to the thread
        cut = Scrub(store, writer.found_damage)
        cut.first(seconds=0)  # no time for anything at the start: the thread goes on
        cut.start()
        until(lambda: writer.unwritable is not None, "the scrub")
        cut.stop(PATIENCE)
        before = store.head()
        with pytest.raises(Damaged, match="restore a backup"):
            writer.execute(ask_for(1)).result(PATIENCE)
        assert renewed(writer, waiter) > 0
        assert store.head() == before
    store = Store(database_url)
    store.take_over()
    with pytest.raises(Damaged, match="table requests"):
        store.load()
    store.close()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE pools SET description = 'x'", "table pools has a changed row"),
        ("DELETE FROM requests", "table requests has 0 of 1 rows"),
        ("UPDATE tokens SET revoked = NOT revoked", "table tokens has a changed row"),
        ("UPDATE meta SET head = head + 1", "table meta"),
        ("UPDATE meta SET epoch = epoch + 1", "table meta"),
    ],
)
def test_a_start_refuses_what_was_not_committed(
    database_url: str, statement: str, words: str
) -> None:
    store, _ = started(database_url)
    entities = [pool(), policy(), request()]
    store.commit(batch(0, changes(entities), tokens=[token()]))
    store.close()
    tamper(database_url, statement)
    store = Store(database_url)
    store.migrate()
    if "epoch" in statement:
        # Taking over would seal what it finds, so it looks first.
        with pytest.raises(Damaged, match=words):
            store.take_over()
    else:
        store.take_over()
        with pytest.raises(Damaged, match=words):
            store.load()
    store.close()


def test_overwriting_a_damaged_row_does_not_hide_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'cede.db'}"
    store, _ = started(url)
    store.commit(batch(0, changes([pool()])))
    tamper(url, "UPDATE pools SET description = 'x'")
    store.commit(batch(1, changes([], [replace(pool(), description="y")])))
    assert store.scrub() == ["table pools has a changed row among its 1 rows"]
    store.close()

"""Group commit.

Commands share a transaction, a refused one fails alone, nothing is answered early.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from cede.engine.admin.edits import update_policy, update_pool
from cede.engine.audit import audit
from cede.engine.state.state import State
from cede.model.errors import Conflict
from cede.server.tx import Tx
from cede.server.writer import Overloaded, Stopping, Unsound, Writer
from cede.store import Store
from tests.server.helpers import PATIENCE, Deaths, ask_for, give_back, make_pool, running, until
from tests.store.samples import started, token


class Gate:
    """A query that holds the writer up, so that commands gather behind it."""

    def __init__(self, writer: Writer) -> None:
        self._open = threading.Event()
        entered = threading.Event()

        def wait(state: State, now: int) -> None:
            entered.set()
            assert self._open.wait(PATIENCE)

        self._future = writer.query(wait)
        assert entered.wait(PATIENCE)

    def open(self) -> None:
        self._open.set()
        self._future.result(PATIENCE)


def commits(store: Store) -> list[str]:
    """Records every commit from now on."""
    seen: list[str] = []
    store.at_point = lambda point: seen.append(point) if point == "after_commit" else None
    return seen


def test_a_request_is_granted_in_the_same_transaction(database_url: str) -> None:
    with running(database_url) as (store, writer):
        writer.execute(make_pool()).result(PATIENCE)
        seen = commits(store)
        id_ = writer.execute(ask_for(2)).result(PATIENCE)
        request, allocation = store.get_request(id_)
        assert request.status == "allocated"
        assert allocation is not None and allocation.live
        assert seen == ["after_commit"]


def test_waiting_commands_share_one_transaction_and_a_refused_one_fails_alone(
    database_url: str,
) -> None:
    def refused(tx: Tx) -> None:
        ask_for(1, "half-done")(tx)
        tx.audit("alice", "nonsense", "-", {})
        tx.put_token(token("never"))
        raise Conflict("no", "refused after it had changed things")

    def broken(tx: Tx) -> None:
        ask_for(1, "quarter-done")(tx)
        raise ZeroDivisionError

    with running(database_url) as (store, writer):
        writer.execute(make_pool(8)).result(PATIENCE)
        gate = Gate(writer)
        before = [writer.execute(ask_for(1)) for _ in range(3)]
        bad, worse = writer.execute(refused), writer.execute(broken)
        after = [writer.execute(ask_for(1)) for _ in range(3)]
        seen = commits(store)
        gate.open()
        ids = [future.result(PATIENCE) for future in before + after]
        with pytest.raises(Conflict):
            bad.result(PATIENCE)
        with pytest.raises(ZeroDivisionError):
            worse.result(PATIENCE)
        assert seen == ["after_commit"]
        found = [view.request.id for view in store.list_requests(oldest_first=True).items]
        assert found == ids
        assert not store.list_audit().items and not store.list_tokens().items


def test_an_answer_sees_what_the_pass_made_of_the_command(database_url: str) -> None:
    def answer(id_: str, tx: Tx) -> dict[str, str]:
        return {"id": id_, "status": tx.state.requests[id_].status.value}

    with running(database_url) as (_, writer):
        writer.execute(make_pool(2)).result(PATIENCE)
        first = writer.execute(ask_for(2), answer=answer).result(PATIENCE)
        second = writer.execute(ask_for(2), answer=answer).result(PATIENCE)
        assert [first["status"], second["status"]] == ["allocated", "queued"]


def test_nothing_is_answered_before_it_is_committed(database_url: str) -> None:
    with running(database_url) as (store, writer):
        writer.execute(make_pool()).result(PATIENCE)
        answered: list[bool] = []
        gate = Gate(writer)
        future = writer.execute(ask_for(1))
        store.at_point = lambda point: answered.append(future.done())
        gate.open()
        future.result(PATIENCE)
        assert answered == [False, False, False]


def test_queries_see_committed_state_only(database_url: str) -> None:
    with running(database_url) as (_, writer):
        writer.execute(make_pool()).result(PATIENCE)
        gate = Gate(writer)
        command = writer.execute(ask_for(1))
        query = writer.query(lambda state, now: len(state.requests))
        gate.open()
        command.result(PATIENCE)
        assert query.result(PATIENCE) == 0
        assert writer.query(lambda state, now: len(state.requests)).result(PATIENCE) == 1


def test_a_release_grants_the_next_waiter(database_url: str) -> None:
    with running(database_url) as (store, writer):
        writer.execute(make_pool(2)).result(PATIENCE)
        first = writer.execute(ask_for(2)).result(PATIENCE)
        second = writer.execute(ask_for(2)).result(PATIENCE)
        assert store.get_request(second).request.status == "queued"
        writer.execute(give_back(first)).result(PATIENCE)
        assert store.get_request(first).request.status == "released"
        assert store.get_request(second).request.status == "allocated"


def test_it_wakes_by_itself_when_a_lease_runs_out(database_url: str) -> None:
    with running(database_url) as (store, writer):
        writer.execute(make_pool(2)).result(PATIENCE)
        writer.execute(ask_for(2, lease=1_000)).result(PATIENCE)
        second = writer.execute(ask_for(2)).result(PATIENCE)
        until(lambda: store.get_request(second).request.status == "allocated", "the grant")


def test_a_full_queue_refuses(database_url: str) -> None:
    with running(database_url, waiting_max=2) as (_, writer):
        gate = Gate(writer)
        futures = [writer.execute(make_pool()), writer.query(lambda state, now: None)]
        with pytest.raises(Overloaded):
            writer.execute(make_pool())
        gate.open()
        for future in futures:
            future.result(PATIENCE)


def test_stopping_finishes_what_was_taken_and_refuses_the_rest(database_url: str) -> None:
    store, loaded = started(database_url)
    writer = Writer(store, loaded)
    writer.start()
    writer.execute(make_pool()).result(PATIENCE)
    gate = Gate(writer)
    futures = [writer.execute(ask_for(1)) for _ in range(5)]
    stopper = threading.Thread(target=writer.stop)
    stopper.start()
    until(lambda: _refuses(writer), "the refusal")
    gate.open()
    stopper.join(PATIENCE)
    assert len({future.result(0) for future in futures}) == 5
    assert len(store.list_requests().items) == 5
    store.close()


def _refuses(writer: Writer) -> bool:
    try:
        writer.query(lambda state, now: None)
    except Stopping:
        return True
    return False


def test_from_an_event_loop_every_answer_of_a_batch_comes_back_in_one_call(
    database_url: str,
) -> None:
    async def all_of_them(writer: Writer) -> tuple[list[str], int]:
        loop = asyncio.get_running_loop()
        calls = 0
        real = loop.call_soon_threadsafe

        def counted(*arguments: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            return real(*arguments, **more)

        gate = await asyncio.to_thread(Gate, writer)
        futures = [writer.run(ask_for(1)) for _ in range(8)]
        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        gate._open.set()
        ids = await asyncio.wait_for(asyncio.gather(*futures), PATIENCE)
        assert await writer.ask(lambda state, now: len(state.requests)) == 8
        return ids, calls

    with running(database_url) as (store, writer):
        writer.execute(make_pool()).result(PATIENCE)
        ids, calls = asyncio.run(all_of_them(writer))
        assert len(store.get_requests(ids)) == 8
        assert calls <= 3  # the batch, the query, and the loop's own


def test_a_storage_error_ends_the_process(database_url: str) -> None:
    deaths = Deaths()
    store, loaded = started(database_url)
    writer = Writer(store, loaded, on_fatal=deaths)
    writer.start()

    def disk_full(point: str) -> None:
        raise OSError(28, "No space left on device")

    store.at_point = disk_full
    future = writer.execute(make_pool())
    with pytest.raises(OSError, match="No space"):
        future.result(PATIENCE)
    assert deaths.happened.wait(PATIENCE)
    with pytest.raises(Stopping):
        writer.execute(make_pool())
    assert store.list_pools().items == []
    store.close()


def test_an_unsound_database_takes_no_writes(database_url: str, monkeypatch: Any) -> None:
    store, loaded = started(database_url)
    monkeypatch.setattr("cede.engine.audit.audit.check", lambda state: ["S1: 9 of 8 gpu are held"])
    with pytest.raises(Unsound, match="S1: 9 of 8"):
        Writer(store, loaded)
    store.close()


def test_a_failing_pass_grants_nothing_and_keeps_the_commands(
    database_url: str, monkeypatch: Any
) -> None:
    with running(database_url) as (store, writer):
        writer.execute(make_pool()).result(PATIENCE)

        def fails(state: State, now: int) -> None:
            state.emit("nonsense")
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            patch.setattr("cede.server.writer.decide", fails)
            id_ = writer.execute(ask_for(1)).result(PATIENCE)
        assert store.get_request(id_).request.status == "queued"
        assert writer.trouble
        assert "nonsense" not in [event.kind for event in store.events_after(0)]
        # The next audit finds nothing wrong, and the pass is tried again.
        writer._next_audit = 0
        writer.query(lambda state, now: None).result(PATIENCE)
        until(lambda: store.get_request(id_).request.status == "allocated", "the grant")
        assert not writer.trouble


def test_listeners_hear_of_every_commit_after_it(database_url: str) -> None:
    with running(database_url) as (store, writer):
        heard: list[tuple[int, int]] = []
        writer.listeners.append(lambda index: index // 0)  # one that fails harms nobody
        writer.listeners.append(lambda index: heard.append((index, store.head())))
        writer.execute(make_pool()).result(PATIENCE)
        until(lambda: heard, "the word")
        assert all(index == head for index, head in heard)
        assert heard[-1][0] == writer.index


def test_a_pool_that_was_made_smaller_than_its_use_survives_a_restart(database_url: str) -> None:
    def shrink(tx: Tx) -> None:
        (pool,) = tx.state.pools.values()
        (policy,) = tx.state.policies.values()
        update_policy(tx.state, policy.id, reserved={"gpu": 1}, limit={"gpu": 1})
        update_pool(tx.state, pool.id, capacity={"gpu": 1})

    with running(database_url) as (_, writer):
        writer.execute(make_pool()).result(PATIENCE)
        writer.execute(ask_for(8)).result(PATIENCE)
        writer.execute(shrink).result(PATIENCE)
    with running(database_url) as (_, writer):  # an unsound state would be refused here
        assert writer.query(lambda state, now: audit.check(state)).result(PATIENCE) == []


def test_a_large_state_is_counted_again_only_when_nobody_calls(
    database_url: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr("cede.server.writer.AUDIT_BUSY_MAX", 0)
    monkeypatch.setattr("cede.server.writer.AUDIT_QUIET", 500)
    audits: list[int] = []
    with running(database_url) as (_, writer):
        writer.execute(make_pool()).result(PATIENCE)
        writer.execute(ask_for(1)).result(PATIENCE)
        monkeypatch.setattr(
            "cede.server.writer.audit.check", lambda state: audits.append(writer.now()) or []
        )

        def call(state: State, now: int) -> int:
            writer._next_audit = 0  # in the call's own turn: before it, it might be quiet enough
            return now

        called = writer.query(call).result(PATIENCE)
        until(lambda: audits, "the audit")
        assert audits[0] >= called + 500


def test_how_long_deciding_and_writing_took_is_told_of_every_transaction(
    database_url: str,
) -> None:
    told: list[tuple[float, float]] = []
    with running(database_url) as (_, writer):
        writer.on_turn = lambda deciding, writing: told.append((deciding, writing))
        writer.execute(make_pool()).result(PATIENCE)
        writer.execute(ask_for(1)).result(PATIENCE)
    assert len(told) == 2
    assert all(deciding > 0 and writing > 0 for deciding, writing in told)

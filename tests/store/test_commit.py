"""What a commit keeps.

Everything of a batch, in any legal order of events, and the chain of the audit.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from cede.model.errors import NotFound
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.store import AuditNote, Idempotency, Remembered, Store, connect, schema
from cede.store.values import Keep, Moment
from tests.store.samples import (
    BLUE,
    allocation,
    batch,
    changes,
    event,
    policy,
    pool,
    request,
    started,
    token,
)

ENDED = AllocationState.ENDED


def test_what_is_alive_is_loaded_and_what_ended_is_not(database_url: str) -> None:
    store, _ = started(database_url)
    entities = [
        pool(),
        policy(),
        request("holder", 1, status=RequestStatus.ALLOCATED),
        allocation("holder"),
        request("waiter", 3),
        request("over", 4, status=RequestStatus.RELEASED),
        allocation("over", state=ENDED, ended_at=9),
    ]
    moment = Moment(77, "boot", 5)
    store.commit(batch(0, changes(entities, events=[event(5)]), index=5, moment=moment))
    store.close()
    store, loaded = started(database_url)
    state = loaded.state
    assert sorted(state.requests) == ["holder", "waiter"]
    assert list(state.allocations) == ["holder.1"]
    assert (loaded.index, state.index, state.now, loaded.moment) == (5, 5, 77, moment)
    assert state.pools == {"pool-1": entities[0]} and state.policies == {"policy-1": entities[1]}
    assert state.requests["holder"] == entities[2]
    assert store.get_request("over").request.status == "released"
    store.close()


def test_an_allocation_may_end_in_one_pool_and_begin_in_another_in_one_batch(store: Store) -> None:
    first = allocation()
    holder = request(status=RequestStatus.ALLOCATED)
    store.commit(batch(0, changes([pool(), pool("pool-2", "more"), policy(), holder, first])))
    second = allocation(attempt=2, pool_id="pool-2", index=9)
    moved = changes(
        [second],
        [replace(first, state=ENDED, ended_at=8), replace(holder, attempt=2, preempted_count=1)],
    )
    store.commit(batch(1, moved))
    view = store.get_request(holder.id)
    assert view.allocation == second
    assert view.request.preempted_count == 1


def test_a_requeued_request_keeps_its_latest_allocation(store: Store) -> None:
    holder = request(status=RequestStatus.ALLOCATED)
    store.commit(batch(0, changes([pool(), policy(), holder, allocation()])))
    ended = replace(allocation(), state=ENDED, ended_at=8)
    again = replace(holder, status=RequestStatus.QUEUED, attempt=2)
    store.commit(batch(1, changes([], [ended, again])))
    assert store.get_request(holder.id) == (again, ended)


def test_names_and_places_are_free_again_in_the_batch_that_frees_them(store: Store) -> None:
    store.commit(batch(0, changes([pool(), policy()])))
    swapped = changes([pool("pool-2"), policy("policy-2", pool_id="pool-2")])
    swapped.pools.deleted.append("pool-1")
    swapped.policies.deleted.append("policy-1")
    store.commit(batch(1, swapped))
    assert [pool.id for pool in store.list_pools().items] == ["pool-2"]


def test_a_batch_that_breaks_a_constraint_leaves_nothing(store: Store) -> None:
    """S20: also what came before the broken row in the same batch."""
    store.commit(batch(0, changes([pool()])))
    with pytest.raises(DBAPIError):
        broken = changes([pool("pool-2"), request()], events=[event(2)])
        store.commit(batch(1, broken, tokens=[token()]))
    assert store.head() == 1
    assert not store.list_requests().items and not store.events_after(0)
    assert not store.list_tokens().items


def test_tokens_are_made_and_revoked(store: Store) -> None:
    store.commit(batch(0, tokens=[token(), token("token-2")]))
    assert store.find_token("hash-of-token-1") == token()
    store.commit(batch(1, tokens=[token(revoked=True)]))
    found = store.find_token("hash-of-token-1")
    assert found is not None and found.revoked
    assert [each.id for each in store.list_tokens().items] == ["token-1", "token-2"]
    assert store.find_token("hash-of-nothing") is None


def test_the_log_of_changes_does_not_keep_its_greatest_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look for damage in a million ended requests made it 470 MB long."""
    monkeypatch.setattr(connect, "LOG_KEPT", 100_000)
    store, _ = started(url := f"sqlite:///{tmp_path / 'cede.db'}")
    log = tmp_path / "cede.db-wal"
    reader = connect.read_engine(connect.parse_url(url))
    with reader.connect() as connection, connection.begin():
        connection.execute(select(schema.meta)).all()
        for n in range(1, 7):
            long = event(n, data={"text": "x" * 1_000_000})
            store.commit(batch(n - 1, changes(events=[long]), index=n))
        assert log.stat().st_size > 6_000_000
    reader.dispose()
    for n in range(7, 10):
        store.commit(batch(n - 1, changes(events=[event(n)]), index=n))
    assert log.stat().st_size <= 100_000
    store.close()


def test_only_ended_requests_are_deleted_and_their_events_stay(store: Store) -> None:
    over = request("over", 2, status=RequestStatus.RELEASED)
    entities = [pool(), policy(), request(), over, allocation("over", state=ENDED)]
    what = changes(entities, events=[event(3, request_id="over")])
    store.commit(batch(0, what, index=3))
    store.commit(batch(3, deleted_requests=["over", "request-1", "gone"]))
    with pytest.raises(NotFound):
        store.get_request("over")
    assert store.get_request("request-1").request == request()
    assert [each.request_id for each in store.events_after(0)] == ["over"]


def test_answers_are_recalled_by_caller_route_and_key(store: Store) -> None:
    keys = [Idempotency(f"key-{n}", "POST /x", "token-1", f"body-{n}") for n in range(3)]
    answers = [Remembered(each, f'{{"n":"{each.key}"}}', at) for at, each in enumerate(keys)]
    store.commit(batch(0, answers=answers[:2]))
    assert store.recall(keys) == {each.idempotency.place: each for each in answers[:2]}
    removal = store.next_removal(Keep(idempotency=10), 11)
    assert removal is not None
    store.commit(batch(1, removal=removal))
    assert list(store.recall(keys)) == [keys[1].place]


def test_many_answers_are_recalled_at_once(store: Store) -> None:
    keys = [Idempotency(f"key-{n}", "POST /x", "token-1", "body") for n in range(6_000)]
    store.commit(batch(0, answers=[Remembered(keys[-1], "1", 0)]))
    assert list(store.recall(keys)) == [keys[-1].place]


def note(n: int) -> AuditNote:
    return AuditNote("2026-01-01T00:00:00.000Z", "alice", "pool.create", f"pool-{n}", {"é": [n]})


def test_the_audit_is_one_chain_over_batches_and_restarts(database_url: str) -> None:
    store, _ = started(database_url)
    store.commit(batch(0, audit=[note(0), note(1)]))
    store.commit(batch(1, audit=[note(2)]))
    store.close()
    store, _ = started(database_url)
    store.commit(batch(2, audit=[note(3)]))
    entries = store.list_audit().items
    assert [each.note for each in entries] == [note(3), note(2), note(1), note(0)]
    assert store.verify_audit().broken is None
    store.close()


def test_other_subjects_policies_live_side_by_side(store: Store) -> None:
    store.commit(batch(0, changes([pool(), policy(), policy("policy-2", BLUE)])))
    store.commit(batch(1, changes([], [replace(policy(), priority=99)])))
    priorities = {view.policy.id: view.policy.priority for view in store.list_policies().items}
    assert priorities == {"policy-1": 99, "policy-2": 10}

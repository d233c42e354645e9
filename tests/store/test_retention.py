"""What is too old goes, all that reports need of it stays, and the audit says what went."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, func, select, text
from sqlalchemy.exc import IntegrityError

from cede.model.allocation import Allocation
from cede.model.bounds import DAY, HOUR
from cede.model.errors import NotFound
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.reason import Code, Reason
from cede.model.request import Request
from cede.model.terms import Terms
from cede.store import Store, answers, chain, retention, schema
from cede.store.offline import Offline
from cede.store.usage import By
from cede.store.values import AuditNote, Keep, Moment
from tests.store.samples import (
    BLUE,
    RED,
    allocation,
    batch,
    changes,
    event,
    policy,
    pool,
    request,
    started,
    tenant,
)

NOW = 100 * DAY + 5 * HOUR
KEEP = Keep(requests=30 * DAY, events=30 * DAY, audit=30 * DAY, idempotency=DAY)
TODAY = "2026-06-30T12:00:00.000Z"
ENDED = AllocationState.ENDED


def at(instant: int) -> Moment:
    return Moment(instant, "boot", 7)


def run_all(store: Store, keep: Keep = KEEP, now: int = NOW) -> int:
    """Runs and removals until nothing is left; how many commits that took."""
    for commits in range(1_000):
        index = store.head()
        removal = store.next_removal(keep, now)
        run = None if removal is not None else store.next_run(keep, now, TODAY)
        if removal is None and run is None:
            assert store.scrub() == []
            return commits
        store.commit(batch(index, index=index, moment=at(now), removal=removal, run=run))
    raise AssertionError("retention does not come to an end")


def rows_in(store: Store, name: str) -> int:
    table = schema.metadata.tables[name]
    with store._readers.begin() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def ended(id: str, index: int, end: int, **more: Any) -> tuple[Request, Allocation]:
    held = allocation(id, allocated_at=end - HOUR, ended_at=end, state=ENDED, **more)
    return request(id, index, status=RequestStatus.RELEASED), held


# What goes ------------------------------------------------------------------------------------


def test_requests_go_with_all_that_is_theirs_and_others_stay(store: Store) -> None:
    old, young, alive = ended("old", 1, 60 * DAY), ended("young", 2, 90 * DAY), request("alive", 3)
    store.commit(batch(0, changes([pool(), policy(), *old]), index=1, moment=at(60 * DAY)))
    store.commit(batch(1, changes([*young, alive]), index=3, moment=at(90 * DAY)))
    run_all(store)
    with pytest.raises(NotFound):
        store.get_request("old")
    assert store.get_allocation("old", 1) is None
    assert store.get_request("young").allocation == young[1]
    assert store.get_request("alive").request == alive


def test_a_request_is_kept_from_its_end_and_not_from_its_submission(store: Store) -> None:
    waiting = request("old", 1)
    store.commit(batch(0, changes([pool(), policy(), waiting]), index=1, moment=at(1)))
    over = request("old", 1, status=RequestStatus.CANCELLED)
    store.commit(batch(1, changes(updated=[over]), index=2, moment=at(NOW - 10 * DAY)))
    run_all(store)
    assert store.get_request("old").request.ended
    assert run_all(store, now=NOW + 21 * DAY)
    with pytest.raises(NotFound):
        store.get_request("old")


def test_the_first_of_an_array_stays_while_one_of_its_tasks_is_alive(store: Store) -> None:
    first, second, alive = (
        request(f"a{n}", n, part_of="a1", array="0-2", array_task=n - 1) for n in (1, 2, 3)
    )
    over = [replace(each, status=RequestStatus.RELEASED) for each in (first, second)]
    follows = request("b", 4, after=("a1",))
    made = changes([pool(), policy(), *over, alive, follows])
    store.commit(batch(0, made, index=9, moment=at(10 * DAY)))
    run_all(store)
    assert store.get_request("a1").request == over[0]
    assert store.task_id("a1", 2) == "a3"
    assert [each.id for each in store.tasks_of("a1")] == ["a1", "a3"]
    assert store.get_request("b").request == follows
    done = replace(alive, status=RequestStatus.RELEASED)
    store.commit(batch(9, changes(updated=[done]), index=10, moment=at(NOW)))
    assert run_all(store)
    with pytest.raises(NotFound):
        store.get_request("a1")


def test_what_is_kept_for_ever_stays(store: Store) -> None:
    pair = ended("old", 1, DAY)
    made = changes([pool(), policy(), *pair], events=[event(1, at=DAY)])
    store.commit(batch(0, made, index=1, moment=at(DAY), audit=[note("2001-01-01")]))
    assert run_all(store, Keep(None, None, None)) == 0
    assert store.get_request("old").request == pair[0]


def test_what_is_removed_is_removed_a_few_rows_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cede.model.bounds.REMOVED_REQUESTS_MAX", 2)
    monkeypatch.setattr("cede.model.bounds.REMOVED_ROWS_MAX", 3)
    pairs = [each for n in range(1, 6) for each in ended(f"r{n}", n, 10 * DAY)]
    journal = [event(n, at=10 * DAY) for n in range(1, 8)]
    made = changes([pool(), policy(), *pairs], events=journal)
    store.commit(batch(0, made, index=20, moment=at(10 * DAY)))
    # One run, three times requests, three times events.
    assert run_all(store) == 1 + 3 + 3
    assert [rows_in(store, name) for name in ("requests", "allocations", "events")] == [0, 0, 0]
    assert [each.requests for each in store.usage(By.POOL, NOW)] == [5]


def test_after_a_crash_the_next_leader_goes_on(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cede.model.bounds.REMOVED_REQUESTS_MAX", 1)
    store, _ = started(database_url)
    pairs = [each for n in range(1, 4) for each in ended(f"r{n}", n, 10 * DAY)]
    store.commit(batch(0, changes([pool(), policy(), *pairs]), index=20, moment=at(10 * DAY)))
    before = store.usage(By.POOL, NOW)
    store.commit(batch(20, index=20, run=store.next_run(KEEP, NOW, TODAY)))
    store.commit(batch(20, index=20, removal=store.next_removal(KEEP, NOW)))
    lost = store.next_removal(KEEP, NOW)
    assert lost is not None and lost.requests

    def dies(point: str) -> None:
        if point == "during_commit":
            raise RuntimeError

    store.at_point = dies
    with pytest.raises(RuntimeError):
        store.commit(batch(20, index=20, removal=lost))
    store.close()
    again, _ = started(database_url)
    assert again.usage(By.POOL, NOW) == before
    # The run was begun before the crash, and is not begun again.
    assert run_all(again) == 2
    assert [each.note.action for each in again.list_audit().items] == [retention.ACTION]
    assert again.usage(By.POOL, NOW) == before
    again.close()


def test_allocations_of_requests_that_somebody_deleted_go_too(store: Store) -> None:
    pair = ended("old", 1, 60 * DAY)
    store.commit(batch(0, changes([pool(), policy(), *pair]), index=1, moment=at(60 * DAY)))
    store.commit(batch(1, index=1, deleted_requests=["old"]))
    other = ended("other", 2, 60 * DAY)
    store.commit(batch(1, changes(other), index=2, moment=at(60 * DAY)))
    before = store.usage(By.POOL, NOW)
    run_all(store)
    assert rows_in(store, "allocations") == 0
    assert store.usage(By.POOL, NOW) == before


def test_answers_are_small_and_come_back_exactly() -> None:
    told = '{"items":[{"status":201,"request":{"id":"019","labels":{"é":"\\u2028"}}}]}'
    assert answers.unpack(answers.pack(told)) == told
    # As versions before stored them.
    assert (
        answers.unpack("z1BPwUXlL|Bsn=1je0ss")
        == '{"status":201,"request":{"id":"019","labels":{"run":"7"}}}'
    )
    assert answers.unpack(told) == told


# Reports --------------------------------------------------------------------------------------

HISTORY_DAYS = 12


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Request, list[Allocation]]]:
    """Requests with attempts in any pool, under any policy of their subject, that all have ended
    within the history: nothing ends later than a report is asked for.
    """
    made = []
    for n in range(draw(st.integers(1, 6))):
        subject = draw(st.sampled_from([RED, BLUE]))
        status = draw(st.sampled_from([RequestStatus.RELEASED, RequestStatus.PREEMPTED]))
        clock = draw(st.integers(0, 3 * 24)) * HOUR
        held = []
        for attempt in range(1, draw(st.integers(0, 3)) + 1):
            begin = clock + draw(st.sampled_from([0, 1, HOUR, 20 * HOUR]))
            clock = begin + draw(st.sampled_from([0, 1, HOUR, 24 * HOUR, 49 * HOUR]))
            where = draw(st.sampled_from([1, 2]))
            held.append(
                allocation(
                    f"r{n}", attempt, pool_id=f"pool-{where}", allocated_at=begin, ended_at=clock,
                    policy_id=f"{subject.name}-{where}", state=ENDED, index=100 + n * 5 + attempt,
                    amounts={"gpu": draw(st.integers(1, 3)), "mcpu": 2**40},
                    **draw(st.sampled_from([{}, {"taken_for": "x"}, STOPPED_BY_RULE])),
                )
            )  # fmt: skip
        terms = Terms(tenant=draw(st.sampled_from(["", "bio"])))
        of = request(
            f"r{n}", n + 1, subject=subject, status=status, terms=terms, owner="o" * (n % 2),
            attempt=max(1, len(held)),
        )  # fmt: skip
        made.append((of, held))
    return made


STOPPED_BY_RULE = {"reason": Reason(Code.OVER_LIMIT, {"policy": "x"})}


def reports(store: Store, now: int) -> Iterator[Any]:
    """Every report over whole days, for everybody and for one team, and the budgets."""
    for by in By:
        for since in (None, *(day * DAY for day in range(1, HISTORY_DAYS))):
            for subjects in (None, (RED,)) if since in (None, 3 * DAY) else (None,):
                yield by, since, subjects, store.usage(by, now, since=since, subjects=subjects)
    yield store.budgets_used(now)


@pytest.mark.slow
@settings(max_examples=25)
@given(histories(), st.integers(1, HISTORY_DAYS))
def test_reports_say_the_same_before_and_after(
    history: list[tuple[Request, list[Allocation]]], day: int
) -> None:
    with TemporaryDirectory() as folder:
        store, _ = started(f"sqlite:///{Path(folder) / 'cede.db'}")
        places = [
            policy(f"{subject.name}-{n}", subject, pool_id=f"pool-{n}")
            for n in (1, 2)
            for subject in (RED, BLUE)
        ]
        bio = tenant(gpu_hours_budget=100.0, node_hours_budget=100.0)
        pools = [pool("pool-1", "one"), pool("pool-2", "two")]
        store.commit(batch(0, changes([*pools, *places, bio]), index=1))
        index = 1
        for of, held in sorted(history, key=_end):
            made = changes([of, *held])
            store.commit(batch(index, made, index=index + 1, moment=at(_end((of, held)))))
            index += 1
        now = HISTORY_DAYS * DAY
        before = list(reports(store, now))
        keep = Keep(requests=max(1, HISTORY_DAYS - day) * DAY, events=None)
        run_all(store, keep, now)
        assert list(reports(store, now)) == before
        run_all(store, Keep(requests=0, events=None), 100 * DAY)
        assert rows_in(store, "allocations") == rows_in(store, "requests") == 0
        assert list(reports(store, now)) == before
        store.close()


def _end(pair: tuple[Request, list[Allocation]]) -> int:
    return max((each.ended_at or 0 for each in pair[1]), default=0)


# The journals -----------------------------------------------------------------------------------


def note(day: str, n: int = 0) -> AuditNote:
    return AuditNote(f"{day}T01:00:00.000Z", "alice", "pool.create", f"pool-{n}", {"n": n})


def audited(store: Store) -> None:
    """Four old entries and two young ones."""
    days = ["2026-01-01"] * 4 + ["2026-06-29"] * 2
    store.commit(batch(0, audit=[note(day, n) for n, day in enumerate(days)]))


def test_the_audit_holds_after_its_beginning_was_removed(database_url: str) -> None:
    store, _ = started(database_url)
    audited(store)
    fourth = store.list_audit().items[2]
    assert fourth.number == 4
    run_all(store)
    found = [(each.number, each.note.action) for each in store.list_audit().items]
    assert found == [(7, retention.ACTION), (6, "pool.create"), (5, "pool.create")]
    told = store.list_audit().items[0].note
    assert told.detail == {"audit": {"through": 4, "hash": fourth.hash, "count": 4}}
    assert told.actor == retention.ACTOR
    verified = store.verify_audit()
    assert (verified.broken, verified.end.number, verified.removed.number) == (None, 7, 4)
    store.close()
    again, _ = started(database_url)
    again.commit(batch(1, audit=[note("2026-07-01", 9)]))
    assert again.verify_audit().broken is None
    # Once more, beyond the entry that told of the first time.
    later = "2026-09-01T00:00:00.000Z"
    run = again.next_run(KEEP, NOW, later)
    again.commit(batch(2, run=run))
    assert [each.number for each in again.list_audit(limit=1).items] == [9]
    assert again.verify_audit().broken is None
    with Offline(database_url) as offline:
        seen = offline.verify(after=chain.START, limit=100)
        assert (seen.broken, seen.removed.number) == (None, 7)
    again.close()


UNGUARDED = {
    "sqlite": ["DROP TRIGGER audit_keep", "DROP TRIGGER audit_stay"],
    "postgresql": ["DROP TRIGGER audit_keep ON audit", "DROP TRIGGER audit_stay ON audit"],
}


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM audit WHERE number = 5",
        "UPDATE meta SET audit_through = 5",
        "UPDATE meta SET audit_through = 0",
        "UPDATE meta SET audit_cut = 6",
        "UPDATE audit SET detail = '{}' WHERE number = 7",
    ],
)
def test_a_beginning_that_somebody_else_cut_off_is_found(store: Store, statement: str) -> None:
    audited(store)
    run_all(store)
    assert store.verify_audit().broken is None
    engine = create_engine(store._engine.url)
    with engine.begin() as connection:
        for drop in UNGUARDED[connection.dialect.name]:
            connection.execute(text(drop))
        connection.execute(text(statement))
    engine.dispose()
    assert store.verify_audit().broken is not None


def test_events_go_up_to_a_place_that_the_audit_names(store: Store) -> None:
    journal = [event(n, at=n * 10 * DAY) for n in range(1, 11)]
    store.commit(batch(0, changes(events=journal), index=10, moment=at(NOW)))
    run_all(store)
    assert [each.index for each in store.events_after(0)] == [7, 8, 9, 10]
    detail = store.list_audit().items[0].note.detail
    assert detail == {"events": {"through": 6, "count": 6}}


@pytest.mark.parametrize(
    "statement", ["DELETE FROM events WHERE at_index = 7", "DELETE FROM audit"]
)
def test_what_was_not_announced_cannot_be_deleted(store: Store, statement: str) -> None:
    journal = [event(n, at=n * 10 * DAY) for n in range(1, 11)]
    store.commit(batch(0, changes(events=journal), index=10, audit=[note("2026-06-29")]))
    run_all(store)
    engine = create_engine(store._engine.url)
    with pytest.raises(IntegrityError, match="append-only"), engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()

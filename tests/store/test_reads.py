"""Reading.

Pages that neither repeat nor hide, filters, references by name or prefix, exact counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy.event
from sqlalchemy import create_engine, select, text

from cede.model import bounds
from cede.model.errors import Conflict, Invalid, NotFound
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.request import Earmark
from cede.model.terms import Terms
from cede.store import Store, connect, schema
from cede.store.filters import RequestFilter
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
    token,
)

ALLOCATED, RELEASED = RequestStatus.ALLOCATED, RequestStatus.RELEASED


@pytest.fixture
def filled(store: Store) -> Store:
    """Red holds two, waits with two of which one names a pool, and has one behind it.

    Blue waits.
    """
    entities = [
        pool(),
        pool("pool-2", "more"),
        policy(),
        policy("policy-2", pool_id="pool-2"),
        policy("policy-3", BLUE),
        request("a1", 1, status=ALLOCATED, labels={"run": "7", 'odd "key"': "x'y"}),
        allocation("a1", amounts={"gpu": 2, "mcpu": 500}),
        request("a2", 2, status=ALLOCATED, preemptible=False),
        allocation("a2", index=11, amounts={"gpu": 2**52}),
        request("b1", 3, labels={"run": "8"}, terms=Terms(tenant="bio")),
        request("b2", 4, pool_id="pool-2"),
        request("c1", 5, status=RELEASED),
        allocation("c1", pool_id="pool-2", index=12, state=AllocationState.ENDED),
        request("d1", 6, subject=BLUE, earmark=Earmark("pool-1", "policy-3", 9)),
    ]
    events = [event(20, request_id="a1", pool_id="pool-1"), event(21, request_id="d1"), event(22)]
    store.commit(batch(0, changes(entities, events=events), index=30))
    return store


FILTERS: dict[str, tuple[RequestFilter, list[str]]] = {
    "nothing": (RequestFilter(), ["d1", "c1", "b2", "b1", "a2", "a1"]),
    "a status": (RequestFilter(status=("allocated",)), ["a2", "a1"]),
    "statuses": (RequestFilter(status=("released", "queued")), ["d1", "c1", "b2", "b1"]),
    "a component": (RequestFilter(component="blue"), ["d1"]),
    "a component of another type": (RequestFilter(component="blue", component_type="user"), []),
    "what cannot be preempted": (RequestFilter(preemptible=False), ["a2"]),
    "a label": (RequestFilter(labels={"run": "7"}), ["a1"]),
    "an odd label": (RequestFilter(labels={'odd "key"': "x'y"}), ["a1"]),
    "two labels": (RequestFilter(labels={"run": "8", "odd": ""}), []),
    "a tenant": (RequestFilter(tenant="bio"), ["b1"]),
    "a pool": (RequestFilter(pool_id="pool-1"), ["d1", "b1", "a2", "a1"]),
    "another pool": (RequestFilter(pool_id="pool-2"), ["c1", "b2", "b1"]),
    "waiting for a pool": (RequestFilter(pool_id="pool-1", view="queued"), ["d1", "b1"]),
    "holding in a pool": (RequestFilter(pool_id="pool-1", view="active"), ["a2", "a1"]),
    "holding in another": (RequestFilter(pool_id="pool-2", view="active"), []),
    "waiting or holding, and not over": (RequestFilter(pool_id="pool-2", view="all"), ["b2", "b1"]),
    "waiting anywhere": (RequestFilter(view="queued"), ["d1", "b2", "b1"]),
    "who may see": (RequestFilter(subjects=(BLUE,)), ["d1"]),
    "who may see both": (
        RequestFilter(subjects=(BLUE, RED), status=("queued",)),
        ["d1", "b2", "b1"],
    ),
    "who may see nothing": (RequestFilter(subjects=()), []),
}


def test_lists_are_narrowed(filled: Store) -> None:
    for what, (wanted, ids) in FILTERS.items():
        found = [view.request.id for view in filled.list_requests(wanted).items]
        assert found == ids, what


def test_pages_neither_repeat_nor_hide(filled: Store) -> None:
    for wanted, ids in FILTERS.values():
        assert paged(filled, wanted, oldest_first=False) == ids
        assert paged(filled, wanted, oldest_first=True) == ids[::-1]


def test_a_page_looks_at_so_many_requests_and_the_next_goes_on(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then pages may be short or empty; together they still have everything, once."""
    monkeypatch.setattr(bounds, "PAGE_SCAN_MAX", 2)
    empty = filled.list_requests(RequestFilter(labels={"run": "7"}))
    assert empty.items == [] and empty.next is not None
    for wanted, ids in FILTERS.values():
        assert paged(filled, wanted, oldest_first=False) == ids
        assert paged(filled, wanted, oldest_first=True) == ids[::-1]


INDEXES = {
    "nothing": "uq_requests_at_index",
    "a label": "uq_requests_at_index",
    "a pool": "uq_requests_at_index",
    "statuses": "uq_requests_at_index",
    "a status": "ix_requests_active",
    "an end": "ix_requests_status",
    "who may see": "ix_requests_subject",
    "a component of another type": "ix_requests_subject",
    "a tenant": "ix_requests_tenant",
    "parts": "ix_requests_part_of",
    "waiting for a pool": "ix_requests_active",
}


def test_every_page_is_read_along_an_index(tmp_path: Path) -> None:
    """Nothing is sorted and nothing scanned: a page costs what it looks at, whatever there is."""
    store, _ = started(f"sqlite:///{tmp_path / 'cede.db'}")
    others = {
        "an end": RequestFilter(status=("failed",)),
        "parts": RequestFilter(part_of="a1"),
    }
    for what, index in INDEXES.items():
        wanted = others[what] if what in others else FILTERS[what][0]
        found = plans(store, partial(store.list_requests, wanted))
        assert found and all(index in each[0] for each in found), (what, found)
        for step in (step for each in found for step in each):
            assert "TEMP B-TREE" not in step, (what, step)
            assert "SCAN requests" not in step or "INDEX" in step, (what, step)
            assert "SCAN allocations" not in step, (what, step)
    store.close()


def plans(store: Store, read: Callable[[], object]) -> list[list[str]]:
    """How SQLite goes about each statement of a read that concerns requests."""
    said: list[tuple[str, Any]] = []

    def hear(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        said.append((statement, parameters))

    sqlalchemy.event.listen(store._readers, "before_cursor_execute", hear)
    read()
    sqlalchemy.event.remove(store._readers, "before_cursor_execute", hear)
    with store._readers.begin() as connection:
        return [
            [row[3] for row in connection.connection.execute(f"EXPLAIN QUERY PLAN {each}", given)]
            for each, given in said
            if "FROM requests" in each
        ]


def paged(filled: Store, wanted: RequestFilter, *, oldest_first: bool) -> list[str]:
    seen: list[str] = []
    cursor = None
    while True:
        page = filled.list_requests(wanted, cursor=cursor, limit=2, oldest_first=oldest_first)
        seen += [view.request.id for view in page.items]
        if page.next is None:
            return seen
        cursor = page.next


def test_every_list_is_paged(filled: Store) -> None:
    tokens = [token(f"token-{n}") for n in range(3)]
    filled.commit(batch(30, tokens=tokens))
    for list_, total in (
        (filled.list_pools, 2),
        (filled.list_policies, 3),
        (filled.list_tokens, 3),
    ):
        first = list_(limit=1)
        assert first.next is not None
        rest = list_(limit=500, cursor=first.next)
        assert len(first.items) + len(rest.items) == total and rest.next is None


def test_a_cursor_that_was_made_up_or_carried_off_is_refused(filled: Store) -> None:
    cursor = filled.list_requests(limit=1).next
    assert cursor is not None
    filled.list_requests(cursor=cursor)
    middle = len(cursor) // 2
    changed = cursor[:middle] + ("A" if cursor[middle] != "A" else "B") + cursor[middle + 1 :]
    for forged in (changed, "", "AAAA", "!", "é", cursor[:-4], "A" * 5_000):
        with pytest.raises(Invalid) as refusal:
            filled.list_requests(cursor=forged)
        assert refusal.value.field == "cursor"
    with pytest.raises(Invalid, match="other filters"):
        filled.list_requests(RequestFilter(subjects=(RED,)), cursor=cursor)
    with pytest.raises(Invalid, match="another list"):
        filled.list_tokens(cursor=cursor)


def test_pages_are_bounded(store: Store) -> None:
    for limit in (0, -1, 501):
        with pytest.raises(Invalid) as refusal:
            store.list_requests(limit=limit)
        assert refusal.value.field == "limit"


def test_references(filled: Store) -> None:
    assert filled.get_request("c1").request.id == "c1"
    assert filled.get_request("c").request.id == "c1"
    with pytest.raises(Conflict, match="start of several ids: a1, a2") as refusal:
        filled.get_request("a")
    assert refusal.value.code == "ambiguous"
    assert filled.get_pool("gpus").id == "pool-1"
    assert filled.get_pool("pool-2").name == "more"
    assert filled.get_policy("policy-3").policy.subject == BLUE


def test_short_forms_and_names_and_the_latest(store: Store) -> None:
    start = "0198c1d2-8b44-7a51-8c21-"
    one, two, three = (start + each for each in ("6f0d9b3c2a17", "6f0dffff0000", "0198c1d20000"))
    labels = {"name": "train"}
    put = [
        request(one, 1, labels=labels, owner="team:red/ann"),
        request(two, 2, owner="team:red/bob"),
        request(three, 3, subject=BLUE, labels=labels, owner="team:blue/ann"),
    ]
    store.commit(batch(0, changes(put), index=30))
    assert store.get_request("6f0d9b3c").request.id == one
    assert store.get_request("6f0df").request.id == two
    # A short form before a start: it is what people were shown.
    assert store.get_request("0198c1d2").request.id == three
    with pytest.raises(Conflict, match="several ids: 6f0d9b3c, 6f0dffff"):
        store.get_request("6f0d")
    for too_short in ("6f0", "train"):
        with pytest.raises(NotFound):
            store.get_request(too_short)
    assert store.get_request("train", subjects=[RED], named=True).request.id == one
    with pytest.raises(Conflict, match="name of several requests: 0198c1d2, 6f0d9b3c"):
        store.get_request("train", named=True)
    assert store.latest_request("team:red/ann") == one
    with pytest.raises(NotFound):
        store.latest_request("team:red/ann", subjects=[BLUE])


def test_short_forms_are_found_by_an_index(store: Store, database_url: str) -> None:
    engine = create_engine(connect.parse_url(database_url))
    wanted = select(schema.requests.c.id).where(schema.tail(schema.requests.c.id) == "6f0d")
    with engine.begin() as connection:
        sqlite = connection.dialect.name == "sqlite"
        if not sqlite:
            connection.execute(text("SET enable_seqscan = off"))
        plan = "EXPLAIN QUERY PLAN " if sqlite else "EXPLAIN "
        words = str(wanted.compile(engine, compile_kwargs={"literal_binds": True}))
        found = " ".join(str(row) for row in connection.execute(text(plan + words)))
    engine.dispose()
    assert "ix_requests_tail" in found


def test_what_is_not_there_is_not_found(filled: Store) -> None:
    for ref in ("", "z", "%", "_1", "a1'--", "a" * 10_000, "../a1", "a\0"):
        with pytest.raises(NotFound):
            filled.get_request(ref)
        with pytest.raises(NotFound):
            filled.get_pool(ref)


def test_what_the_caller_may_not_see_is_not_there(filled: Store) -> None:
    """Neither by id nor as a reason for ambiguity: no oracle."""
    with pytest.raises(NotFound):
        filled.get_request("d1", subjects=[RED])
    with pytest.raises(NotFound):
        filled.get_request("a1", subjects=[])
    filled.commit(batch(30, changes([request("d2", 31)])))
    assert filled.get_request("d", subjects=[RED]).request.id == "d2"
    assert [view.policy.id for view in filled.list_policies(subjects=[BLUE]).items] == ["policy-3"]
    assert filled.list_policies(subjects=[]).items == []


def test_policies_say_what_they_hold(filled: Store) -> None:
    held: dict[str, Any] = {
        view.policy.id: (view.pool_name, view.occupied) for view in filled.list_policies().items
    }
    assert held == {
        "policy-1": ("gpus", {"gpu": 2**52 + 2, "mcpu": 500}),
        "policy-2": ("more", {}),
        "policy-3": ("gpus", {}),
    }
    found = filled.list_policies(pool_id="pool-1", component="red", component_type="team").items
    assert [view.policy.id for view in found] == ["policy-1"]


def test_events_come_in_order_and_to_whom_they_concern(filled: Store) -> None:
    def seen(after: int = 0, **filters: Any) -> list[int]:
        return [each.index for each in filled.events_after(after, **filters)]

    assert seen() == [20, 21, 22]
    assert seen(20) == [21, 22]
    assert seen(limit=1) == [20]
    assert seen(request_id="d1") == [21]
    assert seen(pool_id="pool-1") == [20]
    assert seen(subjects=[RED]) == [20]
    assert seen(subjects=[]) == []


def test_events_of_subjects_are_all_found_however_far_apart_they_are(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = ["a1", "d1", "c1", "gone", "d1", "d1", "b1", "b1", "b1", "d1", "a1"]
    made = [event(30 + n, request_id=each) for n, each in enumerate(ids, 1)]
    filled.commit(batch(30, changes(events=made), index=50))
    for subjects in ([RED], [BLUE], [RED, BLUE]):
        of = {subject.name for subject in subjects}
        mine = [each.index for each in filled.events_after(0, subjects=subjects)]
        known = {"a1": "red", "b1": "red", "c1": "red", "d1": "blue"}
        assert mine[-4:] == [n for n, each in enumerate(ids, 31) if known.get(each) in of][-4:]
        for near in (1, 2, 5):
            monkeypatch.setattr(bounds, "PAGE_SCAN_MAX", near)
            for limit in (1, 2, 3, 100):
                for index in (0, 20, 33, 38, 41, 60):
                    told: dict[str, Any] = {"limit": limit, "subjects": subjects}
                    after = [each.index for each in filled.events_after(index, **told)]
                    assert after == [each for each in mine if each > index][:limit]
                    before = [each.index for each in filled.events_before(index, **told)]
                    assert before == [each for each in mine if each < index][-limit:]
        monkeypatch.undo()


def test_who_follows_the_journal_does_not_pay_for_all_that_its_subject_asked_for(
    tmp_path: Path,
) -> None:
    """A stream of a team with 50,000 requests took 43 ms for each piece, near the end as well."""
    store, _ = started(f"sqlite:///{tmp_path / 'cede.db'}")
    for read in (store.events_after, store.events_before):
        (steps,) = plans(store, partial(read, 10, subjects=[RED]))
        assert any("SEARCH events USING INTEGER PRIMARY KEY" in step for step in steps), steps
        assert any("SEARCH requests USING PRIMARY KEY" in step for step in steps), steps
        assert not any("TEMP B-TREE" in step for step in steps), steps
    store.close()


def test_readers_cannot_write(filled: Store) -> None:
    from sqlalchemy import update
    from sqlalchemy.exc import DBAPIError

    from cede.store import schema

    with pytest.raises(DBAPIError), filled._readers.begin() as connection:
        connection.execute(update(schema.meta).values(head=0))


def test_a_reader_neither_waits_for_the_writer_nor_sees_half_a_plan(filled: Store) -> None:
    """S20: in the middle of a commit, reads give what was there before it."""
    seen: list[Any] = []

    def look(point: str) -> None:
        if point == "during_commit":
            seen.append((filled.head(), [pool.id for pool in filled.list_pools().items]))

    filled.at_point = look
    filled.commit(batch(30, changes([pool("pool-3", "third")])))
    assert seen == [(30, ["pool-1", "pool-2"])]
    assert filled.head() == 31 and len(filled.list_pools().items) == 3

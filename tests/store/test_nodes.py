"""Nodes, the devices of live allocations, and what those cost who need none of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from cede.model.allocation import Allocation, Member
from cede.model.errors import NotFound
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.node import NodeState
from cede.model.token import Role, node_subject
from cede.model.work import Work
from cede.store import RequestFilter, Store, rows, schema
from tests.store.samples import allocation, batch, changes, node, policy, pool, request, token
from tests.store.samples import event as an_event

GPUS = {"gpu": ("0", "1")}


def held(store: Store) -> set[tuple[str, str, str]]:
    with store._readers.begin() as connection:
        found = connection.execute(select(schema.held_devices))
        return {(row.node_id, row.device, row.request_id) for row in found}


def holder(id: str, index: int, device: str) -> Iterator[object]:
    yield request(id, index, status=RequestStatus.ALLOCATED)
    yield allocation(id, members=(Member(0, "node-1", {"gpu": (device,)}),))


@pytest.fixture
def filled(store: Store) -> Store:
    entities = [pool(), node(), policy(), *holder("a", 1, "0"), *holder("b", 2, "1")]
    store.commit(batch(0, changes(entities)))
    return store


def test_devices_are_held_for_as_long_as_their_allocation_lives(filled: Store) -> None:
    assert held(filled) == {("node-1", "0", "a"), ("node-1", "1", "b")}
    first = filled.get_request("a").allocation
    assert first is not None
    ended = replace(first, state=AllocationState.ENDED, ended_at=9)
    # The device goes from one to the next in one batch.
    filled.commit(batch(1, changes(holder("c", 3, "0"), [ended])))
    assert held(filled) == {("node-1", "0", "c"), ("node-1", "1", "b")}


def test_a_device_that_is_held_is_not_given_again(filled: Store) -> None:
    with pytest.raises(IntegrityError):
        filled.commit(batch(1, changes(holder("c", 3, "0"))))
    assert held(filled) == {("node-1", "0", "a"), ("node-1", "1", "b")}


def test_work_that_is_handed_over_is_kept(filled: Store) -> None:
    work = Work(("python", "train.py"), {"A": "b"}, "/home")
    ours = replace(filled.get_request("a").request, work=work, lease=None, lease_until=None)
    told = changes(updated=[ours])
    told.events.append(replace(an_event(2), kind="handed_over", request_id="a"))
    filled.commit(batch(1, told))
    assert filled.get_request("a").request.work == work
    assert filled.get_request("b").request.work is None
    # Every other change leaves it alone.
    filled.commit(batch(2, changes(updated=[replace(ours, bypassed=1)])))
    assert filled.get_request("a").request.work == work


def test_a_pool_and_its_nodes_come_and_go_in_one_batch(filled: Store) -> None:
    other = pool("pool-2", "more", nodes={"zone": "b"})
    made = changes([other, node("node-2", "beta", pool_id="pool-2", labels={"zone": "b"})])
    filled.commit(batch(1, made))
    assert filled.get_pool("more") == other
    moved = replace(filled.get_node("beta"), pool_id=None, state=NodeState.DRAINED)
    gone = changes(updated=[moved])
    gone.pools.deleted.append("pool-2")
    filled.commit(batch(2, gone))
    assert filled.get_node("beta") == moved
    removed = changes()
    removed.nodes.deleted.append("node-2")
    filled.commit(batch(3, removed))
    with pytest.raises(NotFound):
        filled.get_node("node-2")
    assert filled.node_counts() == {("pool-1", "ready"): 1}


def test_nodes_are_listed_by_name(filled: Store) -> None:
    filled.commit(batch(1, changes([node(f"n{i}", f"x{i}", pool_id=None) for i in range(3)])))
    first = filled.list_nodes(limit=2)
    rest = filled.list_nodes(limit=2, cursor=first.next)
    assert [each.name for each in first.items + rest.items] == ["alpha", "x0", "x1", "x2"]
    assert [each.name for each in filled.list_nodes(pool_id="pool-1").items] == ["alpha"]


def test_an_attempt_is_found_after_the_next_one_began(filled: Store) -> None:
    first = filled.get_request("a").allocation
    assert first is not None
    ended = replace(first, state=AllocationState.ENDED, ended_at=9)
    again = allocation("a", 2, members=first.members)
    filled.commit(batch(1, changes([again], [ended, request("a", 1, attempt=2)])))
    assert filled.get_allocation("a", 1) == ended
    assert filled.get_allocation("a", 2) == again
    assert filled.get_allocation("a", 3) is None


def test_parts_are_listed_with_the_first_of_them(filled: Store) -> None:
    parts = [request(f"p{i}", 10 + i, part_of="p0") for i in range(3)]
    filled.commit(batch(1, changes(parts)))
    found = filled.list_requests(RequestFilter(part_of="p0")).items
    assert {view.request.id for view in found} == {"p0", "p1", "p2"}


def test_long_work_is_read_with_its_request_and_not_in_lists(filled: Store) -> None:
    long, short = Work(("train",), {"KEY": "x" * 500_000}), Work(("train", "--fast"))
    filled.commit(batch(1, changes([request("l", 10, work=long), request("s", 11, work=short)])))
    assert filled.get_request("l").request.work == long
    listed = {view.request.id: view.request.work for view in filled.list_requests().items}
    assert listed["l"] == Work(("…",)) and listed["s"] == short and listed["a"] is None


def test_tokens_of_a_node_are_found(filled: Store) -> None:
    mine = token("t1", role=Role.NODE, subjects=(node_subject("node-1"),))
    revoked = replace(mine, id="t2", hash="x", revoked=True)
    join = token("t3", role=Role.JOIN, subjects=(node_subject("node-1"),), uses=0)
    filled.commit(batch(1, tokens=[mine, revoked, join]))
    assert filled.tokens_of_machine(node_subject("node-1")) == [mine]
    assert filled.get_token("t3") == join


def test_who_needs_none_of_it_pays_nothing_for_it(tmp_path: Path) -> None:
    """A plain request and its grant: a statement for each table, two for the row of the commit, and
    as many bytes as ever.
    """
    store = Store(f"sqlite:///{tmp_path / 'cede.db'}")
    store.migrate()
    store.take_over()
    store.load()
    store.commit(batch(0, changes([pool(), policy()])))
    said: list[str] = []
    assert store._writing is not None
    raw = store._writing.connection.dbapi_connection
    assert isinstance(raw, sqlite3.Connection)
    raw.set_trace_callback(said.append)
    granted = request(status=RequestStatus.ALLOCATED)
    store.commit(batch(1, changes([granted, allocation()], events=[an_event(2)])))
    raw.set_trace_callback(None)
    store.close()
    verbs = [each.split()[0] for each in said]
    assert verbs == ["BEGIN", "UPDATE", "INSERT", "INSERT", "INSERT", "UPDATE", "COMMIT"]
    # NULL is one byte in a row of SQLite: what is usual may not be more.
    new_columns = rows.request_row(granted, None)[-4:] + rows.allocation_row(_plain())[-2:]
    assert new_columns == (None,) * 6
    assert rows.request_row(granted, None)[24] is None, "the usual on_silence is not written"


def _plain() -> Allocation:
    return allocation()

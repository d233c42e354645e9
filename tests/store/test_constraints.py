"""The database itself refuses what must never be, whatever the code above it believes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, delete, event, insert, text, update
from sqlalchemy.exc import IntegrityError

from cede.model.allocation import Member
from cede.model.lifecycle import AllocationState
from cede.store import AuditNote, Store, node_rows, rows, schema
from cede.store.statements import REQUESTS
from tests.store.samples import (
    allocation,
    batch,
    changes,
    node,
    policy,
    pool,
    request,
    tenant,
    token,
)
from tests.store.samples import event as an_event

ENDED = AllocationState.ENDED


def one(table: Any, row: tuple[Any, ...], **changed: Any) -> Any:
    columns = REQUESTS.columns if table is schema.requests else table.columns
    return insert(table).values(
        {column.name: value for column, value in zip(columns, row, strict=True)} | changed
    )


def a_request(**changed: Any) -> Any:
    row = rows.request_row(request("request-2", 20), None)
    return one(schema.requests, row, **changed)


def an_allocation(**changed: Any) -> Any:
    return one(schema.allocations, rows.allocation_row(allocation()), **changed)


def a_node(**changed: Any) -> Any:
    return one(schema.nodes, node_rows.node_row(node("node-2", "beta")), **changed)


BROKEN: dict[str, Callable[[], Any]] = {
    "a second row of meta": lambda: insert(schema.meta).values(
        id=2,
        epoch=0,
        holder="",
        lease_until=0,
        head=0,
        instant=0,
        boot_id="",
        boottime=0,
        secret="",
    ),
    "a negative epoch": lambda: update(schema.meta).values(epoch=-1),
    "a pool with a name that is taken": lambda: one(
        schema.pools, rows.pool_row(pool("pool-2", "gpus"))
    ),
    "a second policy of a subject in a pool": lambda: one(
        schema.policies, rows.policy_row(policy("policy-2"))
    ),
    "a policy in no pool": lambda: one(
        schema.policies, rows.policy_row(policy("policy-2", pool_id="gone"))
    ),
    "a policy for an unknown type of subject": lambda: one(
        schema.policies, rows.policy_row(policy("policy-2")), subject_type="planet"
    ),
    "a pool deleted under its policies": lambda: delete(schema.pools),
    "a tenant with a name that is taken": lambda: one(
        schema.tenants, rows.tenant_row(tenant("tenant-2"))
    ),
    "a negative quota": lambda: one(
        schema.tenants, rows.tenant_row(tenant("tenant-2", "chem", max_nodes=-1))
    ),
    "an allocation on less than a node": lambda: update(schema.allocations).values(nodes=0),
    "a request twice": lambda: a_request(id="request-1"),
    "two requests at one index": lambda: a_request(at_index=1),
    "an unknown status": lambda: a_request(status="sleeping"),
    "an unknown type of requester": lambda: a_request(subject_type="planet"),
    "an attempt before the first": lambda: a_request(attempt=0),
    "a negative count of preemptions": lambda: a_request(preempted_count=-1),
    "a class beyond the last": lambda: a_request(**{"class": 11}),
    "a negative walltime": lambda: a_request(walltime=-1),
    "a pool of the latest allocation without its attempt": lambda: a_request(
        granted_pool_id="pool-1"
    ),
    "a request with another pair key": lambda: a_request(one=2),
    "a second live allocation (S9)": lambda: an_allocation(attempt=2),
    "an attempt twice (S9)": lambda: an_allocation(live=None, state="ended"),
    "a live allocation in another pool than its request's (S9)": lambda: update(
        schema.allocations
    ).values(pool_id="pool-2"),
    "a live allocation of no request": lambda: an_allocation(request_id="gone"),
    "a live allocation that says it has ended": lambda: an_allocation(attempt=2, live=None),
    "an ended allocation that says it is live": lambda: update(schema.allocations).values(
        state="ended"
    ),
    "an unknown state": lambda: update(schema.allocations).values(state="sleeping"),
    "a negative deadline": lambda: update(schema.allocations).values(deadline=-1),
    "a device in two live allocations (S3)": lambda: insert(schema.held_devices).values(
        node_id="node-1", key="gpu", device="0", request_id="request-2", attempt=1
    ),
    "a device of no node": lambda: insert(schema.held_devices).values(
        node_id="gone", key="gpu", device="0", request_id="request-1", attempt=1
    ),
    "a node deleted under its held devices": lambda: delete(schema.nodes),
    "a node with a name that is taken": lambda: a_node(name="alpha"),
    "a node in no such pool": lambda: a_node(pool_id="gone"),
    "a node in an unknown state": lambda: a_node(state="asleep"),
    "a node that is out in an unknown way": lambda: a_node(out="perhaps"),
    "a negative count of failures": lambda: a_node(failures=-1),
    "a request deleted under its live allocation": lambda: delete(schema.requests),
    "a request moved away from its live allocation": lambda: update(schema.requests).values(
        granted_pool_id="pool-2"
    ),
    "an event changed": lambda: update(schema.events).values(kind="other"),
    "an event deleted": lambda: delete(schema.events),
    "two events at one index": lambda: one(schema.events, rows.event_row(an_event(3))),
    "an audit entry changed": lambda: update(schema.audit).values(actor="nobody"),
    "an audit entry deleted": lambda: delete(schema.audit),
    "a fork of the audit chain": lambda: insert(schema.audit).values(
        number=2,
        created="",
        actor="",
        action="",
        target="",
        detail="{}",
        previous="0" * 64,
        hash="",
    ),
    "two tokens with one secret": lambda: one(
        schema.tokens, rows.token_row(token("token-2", hash="hash-of-token-1"))
    ),
    "a token with fewer than no uses": lambda: one(
        schema.tokens, rows.token_row(token("token-2")), uses=-1
    ),
    "a token of an unknown role": lambda: one(
        schema.tokens, rows.token_row(token("token-2")), role="king"
    ),
}


@pytest.fixture
def filled(store: Store) -> Store:
    members = (Member(0, "node-1", {"gpu": ("0", "1")}),)
    entities = [pool(), node(), policy(), tenant(), request(), allocation(members=members)]
    what = changes(entities, events=[an_event(3)])
    note = AuditNote("2026-01-01T00:00:00.000Z", "alice", "pool.create", "gpus", {})
    store.commit(batch(0, what, index=3, tokens=[token()], audit=[note]))
    return store


def connected(database_url: str) -> Any:
    """A connection of anybody's, with nothing of ours but the database's own rules."""
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"))
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def rules_on(connection: Any, _: Any) -> None:
            connection.execute("PRAGMA foreign_keys = ON")

    return engine


def test_each_broken_row_is_refused(filled: Store, database_url: str) -> None:
    engine = connected(database_url)
    taken = [what for what, broken in BROKEN.items() if not refuses(engine, broken())]
    engine.dispose()
    assert taken == []


def refuses(engine: Engine, statement: Any) -> bool:
    try:
        with engine.begin() as connection:  # to its end: some rules are looked at only then
            connection.execute(statement)
    except IntegrityError:
        return True
    return False


def test_takes_what_is_sound(filled: Store, database_url: str) -> None:
    """The same rows unbroken go in: what refused the others was what was broken about them."""
    engine = connected(database_url)
    with engine.begin() as connection:
        connection.execute(a_request())
        connection.execute(an_allocation(attempt=2, live=None, state="ended"))
        connection.execute(a_node())
        connection.execute(
            insert(schema.held_devices).values(
                node_id="node-2", key="gpu", device="0", request_id="request-1", attempt=1
            )
        )
        connection.execute(one(schema.pools, rows.pool_row(pool("pool-2", "others"))))
        connection.execute(one(schema.tenants, rows.tenant_row(tenant("tenant-2", "chem"))))
        connection.execute(one(schema.tokens, rows.token_row(token("token-2"))))
        connection.execute(one(schema.events, rows.event_row(an_event(4))))
    engine.dispose()


def test_events_are_not_truncated_either(filled: Store, database_url: str) -> None:
    if filled.sqlite:
        pytest.skip("SQLite knows no TRUNCATE; DELETE is refused above")
    engine = connected(database_url)
    assert refuses(engine, text("TRUNCATE events"))
    engine.dispose()

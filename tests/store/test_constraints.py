"""The database itself refuses what must never be, whatever the code above it believes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, delete, event, insert, text, update
from sqlalchemy.exc import IntegrityError

from cede.model.lifecycle import AllocationState
from cede.store import AuditNote, Store, rows, schema
from cede.store.statements import REQUESTS
from tests.store.samples import allocation, batch, changes, policy, pool, request, token
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
    "a request twice": lambda: a_request(id="request-1"),
    "two requests at one index": lambda: a_request(at_index=1),
    "an unknown status": lambda: a_request(status="sleeping"),
    "an unknown type of requester": lambda: a_request(subject_type="planet"),
    "an attempt before the first": lambda: a_request(attempt=0),
    "a negative count of preemptions": lambda: a_request(preempted_count=-1),
    "a negative walltime": lambda: a_request(walltime=-1),
    "a pool of the latest allocation without its attempt": lambda: a_request(
        granted_pool_id="pool-1"
    ),
    "a request with another pair key": lambda: a_request(one=2),
    "a second live allocation (S9)": lambda: an_allocation(attempt=2),
    "an attempt twice (S9)": lambda: an_allocation(live=None, state="ended"),
    "a live allocation in another pool than its request's (S9)": lambda: an_allocation(
        attempt=2, task=1, pool_id="pool-2"
    ),
    "a live allocation of no request": lambda: an_allocation(request_id="gone"),
    "a live allocation that says it has ended": lambda: an_allocation(attempt=2, live=None),
    "an ended allocation that says it is live": lambda: an_allocation(
        attempt=2, task=1, state="ended"
    ),
    "an unknown state": lambda: an_allocation(attempt=2, task=1, state="sleeping"),
    "a negative deadline": lambda: an_allocation(attempt=2, task=1, deadline=-1),
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
    "a token of an unknown role": lambda: one(
        schema.tokens, rows.token_row(token("token-2")), role="king"
    ),
}


@pytest.fixture
def filled(store: Store) -> Store:
    entities = [pool(), policy(), request(), allocation()]
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
    with engine.connect() as connection:
        taken = [what for what, broken in BROKEN.items() if not refuses(connection, broken())]
    engine.dispose()
    assert taken == []


def refuses(connection: Connection, statement: Any) -> bool:
    transaction = connection.begin()
    try:
        connection.execute(statement)
    except IntegrityError:
        return True
    finally:
        transaction.rollback()
    return False


def test_takes_what_is_sound(filled: Store, database_url: str) -> None:
    """The same rows unbroken go in: what refused the others was what was broken about them."""
    engine = connected(database_url)
    with engine.begin() as connection:
        connection.execute(a_request())
        connection.execute(an_allocation(attempt=2, live=None, state="ended"))
        connection.execute(an_allocation(attempt=3, task=1))
        connection.execute(one(schema.pools, rows.pool_row(pool("pool-2", "others"))))
        connection.execute(one(schema.tokens, rows.token_row(token("token-2"))))
        connection.execute(one(schema.events, rows.event_row(an_event(4))))
    engine.dispose()


def test_events_are_not_truncated_either(filled: Store, database_url: str) -> None:
    if filled.sqlite:
        pytest.skip("SQLite knows no TRUNCATE; DELETE is refused above")
    engine = connected(database_url)
    with engine.connect() as connection:
        assert refuses(connection, text("TRUNCATE events"))
    engine.dispose()

"""Small true values to start from; a test changes what it is about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cede.engine.state.changes import Changes, Event, Rows
from cede.model.allocation import Allocation, allocation_id
from cede.model.node import Node
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.settings import Settings
from cede.model.subject import Subject
from cede.model.tenant import Tenant
from cede.model.token import Role, Token
from cede.store import Batch, Loaded, Store
from cede.store.values import Moment
from tests.support import databases

RED = Subject("team", "red")
BLUE = Subject("team", "blue")


def pool(id: str = "pool-1", name: str = "gpus", **more: Any) -> Pool:
    return Pool(id, name, {"gpu": 8}, "quota", Settings(), **more)


def node(id: str = "node-1", name: str = "alpha", **more: Any) -> Node:
    given: dict[str, Any] = {"amounts": {"gpu": 2}, "devices": {"gpu": ("0", "1")}}
    return Node(id, name, **(given | {"pool_id": "pool-1"} | more))


def policy(id: str = "policy-1", subject: Subject = RED, **more: Any) -> Policy:
    return Policy(id, more.pop("pool_id", "pool-1"), subject, 10, {"gpu": 4}, {"gpu": 8}, **more)


def tenant(id: str = "tenant-1", name: str = "bio", **more: Any) -> Tenant:
    return Tenant(id, name, **more)


def request(id: str = "request-1", index: int = 1, **more: Any) -> Request:
    subject = more.pop("subject", RED)
    return Request(id, subject, more.pop("amounts", {"gpu": 2}), 5, index, **more)


def allocation(request_id: str = "request-1", attempt: int = 1, **more: Any) -> Allocation:
    given: dict[str, Any] = {
        "pool_id": "pool-1",
        "policy_id": "policy-1",
        "amounts": {"gpu": 2},
        "preemptible": True,
        "index": 2,
        "allocated_at": 5,
    }
    id_ = allocation_id(request_id, attempt)
    return Allocation(id=id_, request_id=request_id, attempt=attempt, **(given | more))


def event(index: int, **more: Any) -> Event:
    given: dict[str, Any] = {"at": 5, "kind": "noted", "request_id": None, "pool_id": None}
    return Event(index=index, data=more.pop("data", {}), **(given | more))


def token(id: str = "token-1", **more: Any) -> Token:
    given: dict[str, Any] = {"name": "alice", "role": Role.ADMIN, "subjects": (RED,)}
    given |= {"hash": f"hash-of-{id}", "created": "2026-01-01T00:00:00.000Z"}
    return Token(id=id, **(given | more))


def changes(
    inserted: Iterable[Any] = (), updated: Iterable[Any] = (), events: Iterable[Event] = ()
) -> Changes:
    """What a drain would give for these entities."""
    made = Changes(events=list(events))
    tables: dict[type, Rows[Any]] = {
        Pool: made.pools,
        Node: made.nodes,
        Policy: made.policies,
        Tenant: made.tenants,
        Request: made.requests,
        Allocation: made.allocations,
    }
    for each in inserted:
        tables[type(each)].inserted.append(each)
    for each in updated:
        tables[type(each)].updated.append(each)
    return made


def batch(
    expected: int, what: Changes | None = None, index: int | None = None, **more: Any
) -> Batch:
    end = expected + 1 if index is None else index
    return Batch(what or Changes(), expected, end, more.pop("moment", Moment(5, "boot", 7)), **more)


def started(url: str, **more: Any) -> tuple[Store, Loaded]:
    """A store that is the writer."""
    databases.give_tables(url)
    store = Store(url, **more)
    store.migrate()
    store.take_over()
    return store, store.load()

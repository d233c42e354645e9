"""Routes of status, queue and holders: every pool at a glance, and the order of one pool's
queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from cede.engine.explain.holders import holders
from cede.engine.explain.places import PLACE_MAX, in_order
from cede.engine.explain.places import length as waiters
from cede.engine.explain.price import by_price
from cede.engine.explain.status import status
from cede.engine.explain.why import Known, latest_start_in, waiting_reason
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.state.state import State
from cede.engine.state.trial import as_of
from cede.model import bounds
from cede.model.durations import seconds
from cede.model.subject import Subject
from cede.server.api import redact
from cede.server.api.auth import Caller
from cede.server.api.context import Call, ThisCall
from cede.server.api.json_type import Json
from cede.server.api.lists import Component, Limit, PoolRef, show
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.resolve import pool_in
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import Amounts, Out, RequestOut

router = APIRouter(prefix=API, tags=["pools"], route_class=CedeRoute)

Offset = Annotated[int, Query(ge=0, le=bounds.AMOUNT_MAX, description="Rows to leave out.")]
PartLimit = Annotated[
    int | None,
    Query(ge=1, le=bounds.PAGE_MAX, description="So many waiters, with their requests."),
]


class PolicyStatusOut(Out):
    id: str
    component: str
    component_type: str
    parent_id: str | None
    reserved: Amounts
    limit: Amounts | None
    used: Amounts = Field(description="What its requests hold.")
    borrowed: Amounts = Field(description="The used part that no share covers.")
    lent: Amounts = Field(description="The part of its reserve that others hold.")
    waiting: int = Field(description="How many of its requests wait.")
    oldest_wait: float | None = Field(description="Seconds since the oldest of them was submitted.")


class PoolStatusOut(Out):
    id: str
    name: str
    capacity: Amounts
    used: Amounts
    free: Amounts
    waiting: int
    oldest_wait: float | None
    policies: list[PolicyStatusOut] = Field(
        description="Those that the token may see; the sums are of all."
    )


class StatusOut(Out):
    pools: list[PoolStatusOut]


class PlaceOut(Out):
    place: int | None = Field(
        description="From 1; with `limit`, waiters with an earmark come first, with null."
    )
    id: str
    latest_start: float | None = Field(
        None,
        description="With `limit`: seconds until it certainly starts, if nothing of higher "
        "standing arrives; null where nothing proves an instant.",
    )
    request: RequestOut | None = Field(
        None, description="With `limit`: the request and why it waits; null if it has just left."
    )


class HolderOut(Out):
    id: str
    right: Literal["in_share", "in_a_share_above", "borrowed", "promised"]
    price: float | None = Field(
        description="What stopping it costs: minutes of checkpoint and GPU-minutes of lost work; "
        "null for a promise."
    )
    protected: str | None = Field(
        description="Why it is not stopped for others now: sensitive, unsaved or near_completion."
    )
    request: RequestOut | None = Field(None, description="Null if it has just left.")


class HoldersOut(Out):
    items: list[HolderOut] = Field(description="Those that the token may see.")
    length: int = Field(description="How many these are in all.")


class QueueOut(Out):
    items: list[PlaceOut] | None = Field(
        description="The waiters that the token may see, the next one first; null where more than "
        "100,000 wait."
    )
    length: int | None = Field(None, description="With `limit`: how many the token may see.")


_POLICY = {
    "id": "0198c1d2-8b44-7a51-8c21-6f0d9b3c2a17",
    "component": "red",
    "component_type": "team",
    "parent_id": None,
    "reserved": {"gpu": 4},
    "limit": None,
    "used": {"gpu": 6},
    "borrowed": {"gpu": 2},
    "lent": {},
    "waiting": 1,
    "oldest_wait": 12.5,
}
_STATUS = {
    "pools": [
        {
            "id": "0198c1d2-8b44-7a51-8c21-0f0d9b3c2a11",
            "name": "gpus",
            "capacity": {"gpu": 8},
            "used": {"gpu": 6},
            "free": {"gpu": 2},
            "waiting": 1,
            "oldest_wait": 12.5,
            "policies": [_POLICY],
        }
    ]
}
_HOLDERS = {
    "items": [
        {
            "id": "0198c1d2-8b44-7a51-8c21-6f0d9b3c2a17",
            "right": "borrowed",
            "price": 12.5,
            "protected": None,
            "request": None,
        }
    ],
    "length": 1,
}
_QUEUE = {"items": [{"place": 1, "id": "0198c1d2-8b44-7a51-8c21-6f0d9b3c2a17"}]}


@router.get("/status", responses={200: ok(StatusOut, _STATUS)})
async def get_status(call: ThisCall) -> Response:
    """Every pool with its capacity, and every policy with what it has reserved, uses, borrows,
    lends and waits for."""
    caller = call.caller

    def read(state: State, now: int) -> bytes:
        pools = status(state, now)
        for pool in pools:
            pool["policies"] = [
                each
                for each in pool["policies"]
                if caller.sees(Subject(each["component_type"], each["component"]))
            ]
        text: bytes = orjson.dumps({"pools": pools})
        return text

    async def make() -> bytes:
        return await call.costly("status", (caller.bound,), read, light=lambda state: True)

    return await call.shared(make)


@router.get("/pools/{pool}/queue", responses={200: ok(QueueOut, _QUEUE)})
async def get_queue(
    pool: PoolRef,
    call: ThisCall,
    offset: Offset = 0,
    limit: PartLimit = None,
    component: Component = None,
) -> Response:
    """The order in which a pool's waiters stand now. With `limit` a part of it, with the
    requests and why each waits."""
    caller = call.caller

    def shown(subject: Subject) -> bool:
        return caller.sees(subject) and component in (None, subject.name)

    def seen(state: State, ledger: PoolLedger) -> Iterator[tuple[int | None, str]]:
        every: Iterable[tuple[int | None, str]] = (
            (place, age[2]) for place, ((*_, age), _) in enumerate(in_order(ledger), 1)
        )
        if limit is not None:
            # Waiters with an earmark are in no queue any more, and still wait.
            every = chain(((None, id_) for id_ in promised(state, ledger)), every)
        return (each for each in every if shown(state.requests[each[1]].subject))

    def promised(state: State, ledger: PoolLedger) -> Iterator[str]:
        return (id_ for id_ in ledger.earmarks if id_ in state.requests)

    def length(state: State, ledger: PoolLedger) -> int:
        queued = (
            len(queue)
            for key, queue in ledger.queues.items()
            if shown(ledger.policies[key.policy_id].subject)
        )
        owners = (state.requests[id_] for id_ in promised(state, ledger))
        return sum(queued) + sum(shown(each.subject) for each in owners)

    def read(state: State, now: int) -> bytes:
        ledger = state.ledgers[pool_in(state, pool).id]
        if waiters(ledger) > PLACE_MAX:
            return orjson.dumps({"items": None, "length": None})
        part = islice(seen(state, ledger), offset, None if limit is None else offset + limit)
        items: list[Json] = [{"place": place, "id": id_} for place, id_ in part]
        if limit is None:
            return orjson.dumps({"items": items})
        known: Known = {}
        with as_of(state, now):
            for each in items:
                each |= _told(state, caller, pool, each["id"], known)
        return orjson.dumps({"items": items, "length": length(state, ledger)})

    def light(state: State) -> bool:
        # To say why a price is too high, victims are searched for.
        return not by_price(state.ledgers[pool_in(state, pool).id])

    async def make() -> bytes:
        scope = (pool, caller.bound, component, offset, limit)
        found = await call.costly("queue", scope, read, light)
        return found if limit is None else await _with_requests(call, orjson.loads(found))

    return await call.shared(make)


@router.get("/pools/{pool}/holders", responses={200: ok(HoldersOut, _HOLDERS)})
async def get_holders(
    pool: PoolRef, call: ThisCall, limit: Limit, offset: Offset = 0, component: Component = None
) -> Response:
    """The holders of a pool, by which right each holds, and what stopping it would cost: the one
    that would be stopped first comes first; promises to waiters come last."""
    caller = call.caller

    def read(state: State, now: int) -> bytes:
        found = pool_in(state, pool)

        def seen(request_id: str) -> bool:
            subject = state.requests[request_id].subject
            return caller.sees(subject) and component in (None, subject.name)

        with as_of(state, now):
            items, length = holders(state, found.id, seen, offset, limit)
        text: bytes = orjson.dumps({"items": items, "length": length})
        return text

    async def make() -> bytes:
        scope = (pool, caller.bound, component, offset, limit)
        found = await call.costly("holders", scope, read, light=lambda state: True)
        return await _with_requests(call, orjson.loads(found))

    return await call.shared(make)


def _told(state: State, caller: Caller, pool: str, request_id: str, known: Known) -> Json:
    """Return why a request waits, as the caller may see it, and when it starts at the latest."""
    request, pool_id = state.requests[request_id], pool_in(state, pool).id
    start = latest_start_in(state, request, pool_id)
    return {
        "latest_start": None if start is None else seconds(max(start - state.now, 0)),
        "reason": redact.seen_by(caller, state, waiting_reason(state, request, known).to_public()),
    }


async def _with_requests(call: Call, found: Json) -> bytes:
    """Return rows with the requests that they name, as of the latest commit; null for one that
    has left since.
    """
    context, items = call.context, found["items"] or []
    views = await context.read(context.store.get_requests, [each["id"] for each in items])
    known = [views[each["id"]] for each in items if each["id"] in views]
    reasons = {each["id"]: each.pop("reason") for each in items if "reason" in each}
    shown = await show(call, known, explain=False, whole=False, reasons=reasons)
    by_id = {each["id"]: each for each in shown}
    for each in items:
        each["request"] = by_id.get(each["id"])
    text: bytes = orjson.dumps(found)
    return text

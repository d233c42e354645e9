"""Every pool at a glance, and the order of one pool's queue."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from cede.engine.explain.places import in_order
from cede.engine.explain.status import status
from cede.engine.state.state import State
from cede.engine.state.trial import as_of
from cede.model import bounds
from cede.model.subject import Subject
from cede.server.api.context import Call, ThisCall, answer
from cede.server.api.json_type import Json
from cede.server.api.lists import Component, PoolRef, show
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.resolve import pool_in
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import Amounts, Out, RequestOut

router = APIRouter(prefix=API, tags=["pools"], route_class=CedeRoute)

Offset = Annotated[int, Query(ge=0, le=bounds.AMOUNT_MAX, description="Waiters to leave out.")]
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
    borrowed: Amounts = Field(description="What of it no share covers.")
    lent: Amounts = Field(description="What of its reserve others hold.")
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
        description="From 1; with `limit` null, and first, for who was promised capacity."
    )
    id: str
    request: RequestOut | None = Field(
        None, description="With `limit`: the request and why it waits; null if it has just left."
    )


class QueueOut(Out):
    items: list[PlaceOut] | None = Field(
        description="The waiters that the token may see, the next one first; null where more than "
        "10,000 wait."
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

    found = await call.costly("status", (caller.bound,), read)
    return Response(found, media_type="application/json")


@router.get("/pools/{pool}/queue", responses={200: ok(QueueOut, _QUEUE)})
async def get_queue(
    pool: PoolRef,
    call: ThisCall,
    offset: Offset = 0,
    limit: PartLimit = None,
    component: Component = None,
) -> Response:
    """The order in which a pool's waiters stand now. With `limit` a part of it, with the requests
    and why each waits."""
    caller = call.caller

    def read(state: State, now: int) -> bytes:
        found = pool_in(state, pool)
        with as_of(state, now):
            ids = in_order(state, found.id)
        places: list[tuple[int | None, str]] = list(enumerate(ids or (), 1))
        if limit is not None:
            # They stand in no queue any more, and still wait.
            promised = [id_ for id_ in state.ledgers[found.id].earmarks if id_ in state.requests]
            places = [*((None, id_) for id_ in promised), *places]
        seen = [
            {"place": place, "id": id_}
            for place, id_ in places
            if caller.sees(state.requests[id_].subject)
            and component in (None, state.requests[id_].subject.name)
        ]
        text: bytes = orjson.dumps({"items": None if ids is None else seen})
        return text

    found = await call.costly("queue", (pool, caller.bound, component, limit is None), read)
    if limit is None:
        return Response(found, media_type="application/json")
    return answer(await _part(call, orjson.loads(found)["items"], offset, limit))


async def _part(call: Call, items: list[Json] | None, offset: int, limit: int) -> Json:
    """Some of the waiters, with their requests."""
    if items is None:
        return {"items": None, "length": None}
    part = items[offset : offset + limit]
    context = call.context
    views = await context.read(context.store.get_requests, [each["id"] for each in part])
    known = [views[each["id"]] for each in part if each["id"] in views]
    shown = {each["id"]: each for each in await show(call, known, explain=True, whole=False)}
    return {
        "items": [{**each, "request": shown.get(each["id"])} for each in part],
        "length": len(items),
    }

"""Every pool at a glance, and the order of one pool's queue."""

from __future__ import annotations

import orjson
from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from cede.engine.explain.places import in_order
from cede.engine.explain.status import status
from cede.engine.state.state import State
from cede.engine.state.trial import as_of
from cede.model.subject import Subject
from cede.server.api.context import ThisCall
from cede.server.api.lists import PoolRef
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.resolve import pool_in
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import Amounts, Out

router = APIRouter(prefix=API, tags=["pools"], route_class=CedeRoute)


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
    place: int = Field(description="From 1.")
    id: str


class QueueOut(Out):
    items: list[PlaceOut] | None = Field(
        description="The waiters that the token may see, the next one first; null where more than "
        "10,000 wait."
    )


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
async def get_queue(pool: PoolRef, call: ThisCall) -> Response:
    """The order in which a pool's waiters stand now."""
    caller = call.caller

    def read(state: State, now: int) -> bytes:
        with as_of(state, now):
            ids = in_order(state, pool_in(state, pool).id)
        places = enumerate(ids or (), 1)
        seen = [
            {"place": place, "id": id_}
            for place, id_ in places
            if caller.sees(state.requests[id_].subject)
        ]
        text: bytes = orjson.dumps({"items": None if ids is None else seen})
        return text

    found = await call.costly("queue", (pool, caller.bound), read)
    return Response(found, media_type="application/json")

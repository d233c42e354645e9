"""The route of shares: what each policy and request of a pool uses and is due."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from starlette.responses import Response

from cede.engine.explain.shares import show, view_of
from cede.engine.state.state import State
from cede.model.subject import Subject
from cede.server.api.auth import Caller
from cede.server.api.context import ThisCall
from cede.server.api.json_type import Json
from cede.server.api.lists import PoolRef
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.redact import ANOTHER
from cede.server.api.resolve import pool_in
from cede.server.api.route import CedeRoute
from cede.server.api.share_schemas import EXAMPLE, SharesOut

router = APIRouter(prefix=API, tags=["pools"], route_class=CedeRoute)

Requests = Annotated[bool, Query(description="Whether requests are shown beside the policies.")]


@router.get("/pools/{pool}/shares", responses={200: ok(SharesOut, EXAMPLE)})
async def pool_shares(pool: PoolRef, call: ThisCall, requests: Requests = True) -> Response:
    """Every policy and request of a pool with its fair share, what it uses and wants, and
    whether it starves. A pool that decides by what is reserved is shown as it would be.
    """
    caller = call.caller

    def read(state: State, now: int) -> bytes:
        found = show([view_of(state, pool_in(state, pool).id, now, requests=requests)], now)
        if caller.bound is not None:
            found = _seen_by(caller, found)
        text: bytes = orjson.dumps(found)
        return text

    found = await call.costly("shares", (pool, caller.bound, requests), read)
    return Response(found, media_type="application/json")


def _seen_by(caller: Caller, shown: Json) -> Json:
    """Return the part that a tenant may read (C4): its own elements, without the names of those
    above."""
    mine = [
        each
        for each in shown["elements"]
        if caller.sees(Subject(each["component_type"], each["component"]))
    ]
    names = {each["name"] for each in mine if each["kind"] == "policy"}
    held = {
        allocation_id
        for each in mine
        if each["kind"] == "request"
        for ids in each["groups"].values()
        for allocation_id in ids
    }
    for each in mine:
        if each["parent"] is not None and each["parent"] not in names:
            each["parent"] = ANOTHER
        each["groups"] = {
            group: [each for each in ids if each in held] for group, ids in each["groups"].items()
        }
    return {**shown, "elements": mine}

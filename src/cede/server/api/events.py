"""The journal: pages of it, or a stream that goes on from any index (SSE)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from cede.engine.state.changes import Event
from cede.model import bounds
from cede.model.wall import Wall
from cede.server.api import examples, redact
from cede.server.api.context import Call, ThisCall, answer
from cede.server.api.errors import unavailable
from cede.server.api.feed import Piece
from cede.server.api.json_type import Json
from cede.server.api.lists import REFERENCE, Limit, PoolFilter
from cede.server.api.openapi import ok
from cede.server.api.period import time_of
from cede.server.api.permissions import API
from cede.server.api.problem import Problem
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import EventPage
from cede.server.api.views import event_out

router = APIRouter(prefix=API, tags=["events"], route_class=CedeRoute)

HEARTBEAT_SECONDS = 15.0
# The store is read this often even without a beat of the pulse; also how long a revoked token can
# still read.
POLL_SECONDS = 0.5
# After a piece was sent, events of so many seconds are sent together.
GATHER_SECONDS = 0.1
# Each stream costs a poll; more than this many at once is a mistake or an attack.
STREAMS_MAX = 500
EVENT_STREAM = "text/event-stream"

After = Annotated[
    int | None,
    Query(ge=0, le=bounds.AMOUNT_MAX, description="Only what comes after this index."),
]
Before = Annotated[
    int | None,
    Query(
        ge=0,
        le=bounds.AMOUNT_MAX,
        description="The last ones before this index instead; not with `after` or `follow`.",
    ),
]
RequestFilter = Annotated[str | None, Query(**REFERENCE, description="Only of this request.")]

_PAGE = ok(EventPage, {"items": [examples.EVENT], "next": 43})
_PAGE["content"][EVENT_STREAM] = {
    "schema": {"type": "string"},
    "example": f"id: 43\nevent: granted\ndata: {json.dumps(examples.EVENT)}\n\n",
}


@router.get("/events", responses={200: _PAGE})
async def events(
    request: Request,
    call: ThisCall,
    limit: Limit,
    after: After = None,
    before: Before = None,
    follow: bool = False,
    pool: PoolFilter = None,
    request_id: RequestFilter = None,
) -> Response:
    """Events in order, of what the token may see.

    With `follow=true` or `Accept: text/event-stream` the answer is a stream that does not end. It
    starts after `after`, or after `Last-Event-ID`, or now.
    """
    wanted = await _Wanted.of(call, pool, request_id)
    if before is not None:
        if after is not None or follow:
            raise Problem(422, "invalid", "before: not with after or follow", field="before")
        found = await wanted.read_back(before, limit)
        return answer({"items": found, "next": found[-1]["index"] if found else 0})
    if follow or EVENT_STREAM in request.headers.get("accept", ""):
        start = _last_event_id(request) if after is None else after
        return await _stream(call, wanted, start)
    found = await wanted.read(after or 0, limit)
    following = found[-1]["index"] if found else after or 0
    return answer({"items": found, "next": following})


class _Wanted:
    """Selects the events that one caller gets to see."""

    def __init__(self, call: Call, pool_id: str | None, request_id: str | None) -> None:
        self.call = call
        self.pool_id = pool_id
        self.request_id = request_id

    @classmethod
    async def of(cls, call: Call, pool: str | None, request_id: str | None) -> _Wanted:
        context, bound = call.context, call.caller.bound
        if pool is not None:
            pool = (await context.read(context.store.get_pool, pool)).id
        if request_id is not None:
            found = await context.read(context.store.get_request, request_id, subjects=bound)
            request_id = found.request.id
        return cls(call, pool, request_id)

    async def read(self, after: int, limit: int) -> list[Json]:
        return await self._read(self.call.context.store.events_after, after, limit)

    async def piece(self, after: int, head: int) -> Piece:
        scope = (self.call.caller.bound, self.pool_id, self.request_id)
        read = partial(self.read, after, bounds.PAGE_MAX)
        return await self.call.context.feed.after(scope, after, head, read)

    async def read_back(self, before: int, limit: int) -> list[Json]:
        return await self._read(self.call.context.store.events_before, before, limit)

    async def _read(self, events: Callable[..., list[Event]], index: int, limit: int) -> list[Json]:
        bound = self.call.caller.bound
        found = await self.call.context.read(
            events,
            index,
            limit=limit,
            pool_id=self.pool_id,
            request_id=self.request_id,
            subjects=bound,
        )
        wall = await self.call.context.read(self.call.context.store.wall) if found else Wall()
        shown = [event_out(event, time_of(wall, event.at)) for event in found]
        if bound is not None:
            for each in shown:
                redact.event(each)
        return shown


def _last_event_id(request: Request) -> int | None:
    given = request.headers.get("last-event-id")
    if given is None:
        return None
    if not given.isdecimal() or int(given[:20]) > bounds.AMOUNT_MAX:
        detail = f"Last-Event-ID: must be an integer from 0 to {bounds.AMOUNT_MAX}"
        raise Problem(422, "invalid", detail, field="Last-Event-ID")
    return int(given)


async def _stream(call: Call, wanted: _Wanted, start: int | None) -> Response:
    context = call.context
    if context.streams >= STREAMS_MAX:
        raise unavailable("too_many_streams", f"{STREAMS_MAX} streams are open already", 5)
    if start is None:
        start = await context.read(context.store.head)
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(_lines(call, wanted, start), 200, headers, EVENT_STREAM)


async def _lines(call: Call, wanted: _Wanted, after: int) -> AsyncIterator[bytes]:
    """Yield committed events in order, a comment when nothing happens, and end with the server."""
    context = call.context
    context.streams += 1
    silent_since = context.monotonic()
    # Before the first beat, and whenever there was none, the store knows what others have
    # committed.
    beaten = False
    try:
        yield b": from %d\n\n" % after
        while not context.pulse.closed:
            try:
                await context.auth.recheck(call.caller.token.hash)
            except Problem:
                return
            head = context.writer.index if beaten else await context.read(context.store.head)
            beaten = False
            count = 0
            if head > after:
                piece = await wanted.piece(after, head)
                count, after = piece.events, piece.last
                if count:
                    yield piece.text
            now = context.monotonic()
            if count:
                silent_since = now
            elif now - silent_since >= HEARTBEAT_SECONDS:
                silent_since = now
                yield b": still here\n\n"
            if count < bounds.PAGE_MAX:
                if count:
                    await asyncio.sleep(GATHER_SECONDS)
                beaten = context.writer.index > after or await context.pulse.wait(POLL_SECONDS)
    finally:
        context.streams -= 1

"""Parameters that many routes share, and the one way in which requests are listed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any

import orjson
from fastapi import Path, Query

from cede.engine.explain.why import Known, waiting_reason
from cede.engine.state.state import State
from cede.engine.state.trial import as_of
from cede.model import bounds
from cede.server.api import redact
from cede.server.api.context import Call
from cede.server.api.json_type import Json
from cede.server.api.views import Scene, request_out
from cede.server.queue import Overloaded, Stopping
from cede.store import RequestView
from cede.store.filters import RequestFilter

# So many reasons take the writer no longer than a command does.
_FEW = 5
# Requests that are made into JSON in about two milliseconds.
_SLICE = 25

REFERENCE: dict[str, Any] = {"min_length": 1, "max_length": bounds.NAME_LENGTH_MAX}

Limit = Annotated[int, Query(ge=1, le=bounds.PAGE_MAX, default_factory=lambda: bounds.PAGE_DEFAULT)]
Cursor = Annotated[str | None, Query(max_length=1_000, description="`next` of the page before.")]
PoolRef = Annotated[str, Path(**REFERENCE, description="Its name, its id, or the start of its id.")]
PoolFilter = Annotated[
    str | None, Query(**REFERENCE, description="A pool: its name, its id, or the start of its id.")
]
Component = Annotated[str | None, Query(**REFERENCE)]
Explain = Annotated[
    bool, Query(description="Say of every waiter on this page why it waits, as of now.")
]


async def list_requests(
    call: Call, wanted: RequestFilter, cursor: str | None, limit: int, explain: bool
) -> Json:
    context = call.context
    page = await context.read(context.store.list_requests, wanted, cursor=cursor, limit=limit)
    shown = await show(call, page.items, explain=explain, whole=False, as_text=True)
    return {"items": shown, "next": page.next}


async def show(
    call: Call,
    views: Iterable[RequestView],
    *,
    explain: bool,
    whole: bool = True,
    as_text: bool = False,
    reasons: dict[str, Json] | None = None,
) -> list[Any]:
    """Return requests as this caller may see them; with `explain`, waiters with their present
    reason; with `reasons`, those that still wait with the given one, which this caller may see
    as it is. With `as_text` an element may be JSON text already.
    """
    views = list(views)
    ids = {view.request.id for view in views}
    waiting = {view.request.id for view in views if view.request.waiting}
    reasons = {id_: each for id_, each in (reasons or {}).items() if id_ in waiting}
    if explain:
        views, reasons = await _explained(call, views)
    names = await call.context.pool_names(
        pool_id
        for request, allocation in views
        for pool_id in (
            request.pool_id,
            None if allocation is None else allocation.pool_id,
            None if request.earmark is None else request.earmark.pool_id,
        )
    )
    scene = Scene(
        lambda pool_id: names.get(pool_id, pool_id),
        call.context.node_name,
        call.context.writer.now(),
    )

    as_text = as_text and call.caller.bound is None

    def one(view: RequestView) -> Any:
        if as_text and view.request.id not in reasons:
            return call.context.encoded.of(view, scene)
        shown = request_out(*view, scene, whole=whole)
        if shown["id"] in reasons:
            shown["reason"] = reasons[shown["id"]]
        elif call.caller.bound is not None:
            redact.request(shown, ids)
        return shown

    if len(views) <= _SLICE:
        return [one(view) for view in views]
    shown: list[Any] = []
    # One long list at a time, a few milliseconds of it at once: renewals come in between.
    async with call.context.listing:
        for start in range(0, len(views), _SLICE):
            shown += map(one, views[start : start + _SLICE])
            await asyncio.sleep(0)
    return shown


async def _explained(
    call: Call, views: list[RequestView]
) -> tuple[list[RequestView], dict[str, Json]]:
    """Return why each waiter waits; one that has left the queue since it was read is read again."""
    waiting = [view.request.id for view in views if view.request.waiting]
    reasons = await reasons_of(call, waiting)
    if left := [id_ for id_ in waiting if id_ not in reasons]:
        newer = await call.context.read(call.context.store.get_requests, left)
        views = [newer.get(view.request.id, view) for view in views]
    return views, reasons


async def reasons_of(call: Call, ids: list[str]) -> dict[str, Json]:
    """Return why each of these waits, as of the latest commit (L10)."""
    if not ids:
        return {}

    def reasons(state: State, now: int) -> dict[str, Json]:
        found = {}
        known: Known = {}
        with as_of(state, now):
            for request_id in ids:
                request = state.requests.get(request_id)
                if request is not None and request.waiting:
                    reason = waiting_reason(state, request, known).to_public()
                    found[request_id] = redact.seen_by(call.caller, state, reason)
        return found

    def read(state: State, now: int) -> bytes:
        text: bytes = orjson.dumps(reasons(state, now))
        return text

    try:
        if len(ids) <= _FEW:
            return await call.context.query(reasons)
        of = (*ids, call.caller.bound)
        found: dict[str, Json] = orjson.loads(await call.costly("reasons", of, read))
        return found
    except (Overloaded, Stopping):
        return {}  # a read answers all the same, with the stored reasons

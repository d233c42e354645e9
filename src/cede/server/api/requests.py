"""Requests: asked for one by one or in bulk, kept alive, given back, taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from cede.engine.explain import why as engine_explain
from cede.engine.lifecycle import commands
from cede.engine.state.state import State
from cede.launch.presence import name_of
from cede.model import bounds
from cede.model.durations import parse_duration
from cede.model.errors import Conflict, Invalid, NotFound
from cede.model.ids import LATEST
from cede.model.lifecycle import WAITING, RequestStatus
from cede.model.work import parse_work
from cede.server.api import examples, redact
from cede.server.api.auth import Caller
from cede.server.api.bodies import (
    BulkIn,
    ComponentType,
    HandOverIn,
    MachineIn,
    ReleaseIn,
    RenewIn,
    RequestIn,
    RequestPatch,
    SaidIn,
)
from cede.server.api.context import Call, ThisCall, answer, nothing
from cede.server.api.finding import find, find_request
from cede.server.api.json_type import Json
from cede.server.api.lists import (
    REFERENCE,
    Component,
    Cursor,
    Explain,
    Limit,
    PoolFilter,
    list_requests,
    show,
)
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.problem import Problem
from cede.server.api.route import LABEL_FILTERS, LABEL_PREFIX, CedeRoute
from cede.server.api.schemas import Anything, BulkOut, HeldOut, RequestOut, RequestPage
from cede.server.api.submitting import submit_all
from cede.server.api.views import live_request_out
from cede.server.writer import Tx
from cede.store import RequestView
from cede.store.filters import RequestFilter

router = APIRouter(prefix=API, tags=["requests"], route_class=CedeRoute)

RequestRef = Annotated[
    str,
    Path(
        **REFERENCE,
        description="Its id, the short form or the start of it, `ID_7` for a task of an array, or "
        "`last`: the latest of mine; to read it, also its label `name`.",
    ),
]
Statuses = Annotated[
    list[RequestStatus] | None, Query(max_length=20, description="One or several.")
]

PartOf = Annotated[
    str | None,
    Query(**REFERENCE, description="Only the independent tasks that were submitted with this one."),
]

Tenant = Annotated[
    str | None,
    Query(
        min_length=1, max_length=bounds.NAME_LENGTH_MAX, description="Only those of this tenant."
    ),
]

_ID_LENGTH = 36
_LABEL_PARAMETER = {
    "name": "label.NAME",
    "in": "query",
    "required": False,
    "description": "Only requests whose label NAME has this value; several must all match.",
    "schema": {"type": "string", "maxLength": bounds.LABEL_LENGTH_MAX},
}
_RELEASED = {RequestStatus.RELEASED: "done", RequestStatus.FAILED: "failed"}


@router.get(
    "/requests",
    responses={200: ok(RequestPage, examples.page(examples.REQUEST))},
    openapi_extra={LABEL_FILTERS: True, "parameters": [_LABEL_PARAMETER]},
)
async def list_all(
    request: HttpRequest,
    call: ThisCall,
    limit: Limit,
    status: Statuses = None,
    pool: PoolFilter = None,
    component: Component = None,
    component_type: ComponentType | None = None,
    preemptible: bool | None = None,
    part_of: PartOf = None,
    tenant: Tenant = None,
    cursor: Cursor = None,
    explain: Explain = False,
) -> Response:
    """Requests that the token may see, newest first, narrowed by the filters that are given."""
    pool_id = None
    if pool is not None:
        pool_id = (await call.context.read(call.context.store.get_pool, pool)).id
    wanted = RequestFilter(
        subjects=call.caller.bound,
        status=tuple(sorted({each.value for each in status or ()})),
        pool_id=pool_id,
        component=component,
        component_type=component_type,
        preemptible=preemptible,
        labels=_labels(request),
        part_of=part_of,
        tenant=tenant,
    )
    return await call.shared(lambda: list_requests(call, wanted, cursor, limit, explain))


@router.post("/requests", status_code=201, responses={201: ok(HeldOut, examples.HELD, "Submitted")})
async def submit(body: RequestIn, call: ThisCall) -> Response:
    """Ask for compute. The answer is the request after the next decision: queued, allocated, or
    rejected with every pool's reason; or untracked, where the requester has no policy at all."""
    outcome = (await submit_all(call, [body], alone=True))[0]
    return answer(_for_holder(call, outcome["request"]), outcome["status"])


@router.post(
    "/requests/bulk",
    responses={
        200: ok(BulkOut, {"items": [{"status": 201, "request": examples.GRANTED}]}, "Each alone")
    },
)
async def submit_bulk(body: BulkIn, call: ThisCall) -> Response:
    """Ask for many at once, in one transaction. Each succeeds or fails alone, in its own place."""
    extra = len(body.requests) // 10
    budget = call.caller.budget("all")
    call.context.limiter.spend(budget, extra, call.context.monotonic())
    return answer({"items": await submit_all(call, body.requests)})


Wait = Annotated[
    float,
    Query(
        ge=0,
        le=bounds.NEWS_WAIT_MAX / bounds.SECOND,
        description="How many seconds the answer may take while it has the status `known`.",
    ),
]
Known = Annotated[
    RequestStatus | None, Query(description="The status that the caller knows; with `wait`.")
]


@router.get("/requests/{id}", responses={200: ok(RequestOut, examples.REQUEST)})
async def get_request(
    id: RequestRef, call: ThisCall, wait: Wait = 0, known: Known = None
) -> Response:
    """One request; if it waits, with the reason as of now. With `wait` the answer comes when its
    status is no longer the one that is `known`, or when the time is over."""

    async def found() -> Any:
        view = await find_request(call, id, named=True)
        if wait and view.request.status is known:
            view = await _find_when_changed(call, view.request.id, wait, known)
        return (await show(call, [view], explain=True))[0]

    if wait or id in LATEST:  # of one caller alone
        return answer(await found())
    return await call.shared(found)


async def _find_when_changed(
    call: Call, request_id: str, seconds: float, known: RequestStatus
) -> RequestView:
    board = call.context.writer.order_board
    with board.standing(request_id, but=(known,)) as news:
        # Again: what was committed before we stood here is seen here.
        view = await find_request(call, request_id)
        if view.request.status is not known or view.request.ended or board.closed:
            return view
        with call.context.gate.away():
            await asyncio.wait([news], timeout=seconds)
    await call.context.auth.recheck(call.caller.token.hash)
    return await find_request(call, request_id) if news.done() else view


@router.patch("/requests/{id}", responses={200: ok(RequestOut, examples.REQUEST)})
async def change_request(id: RequestRef, body: RequestPatch, call: ThisCall) -> Response:
    """Change the limit of a request that waits or runs. Independent tasks have one together, so it
    changes for all of them that are alive."""
    caller = call.caller

    def command(tx: Tx, request_id: str) -> None:
        _limit(tx, request_id, body.limit, caller)

    found = await _act(call, id, command)
    if not isinstance(found, RequestView):
        return answer(found)
    request = found.request
    if request.part_of != request.id:
        raise _ended(found)
    # The first of independent tasks stands for all of them, also when it has ended itself.
    await call.context.execute(lambda tx: _limit_parts(tx, found, body.limit, caller))
    return answer((await show(call, [found], explain=False))[0])


def _limit(tx: Tx, request_id: str, limit: dict[str, int], caller: Caller) -> None:
    commands.set_limit(tx.state, request_id, limit, tx.now)
    if caller.bound is None:
        tx.audit(caller.identity, "request.limit", request_id, {"limit": limit})


def _limit_parts(tx: Tx, first: RequestView, limit: dict[str, int], caller: Caller) -> None:
    if not commands.parts(tx.state, first.request.id):
        raise _ended(first)
    _limit(tx, first.request.id, limit, caller)


@router.delete(
    "/requests/{id}",
    status_code=204,
    responses={
        204: {"description": "Gone"},
        202: ok(RequestOut, examples.GRANTED, "It holds units, and was asked to stop first"),
    },
)
async def delete_request(id: RequestRef, call: ThisCall) -> Response:
    """Drop a request. One that waits is cancelled first; one that holds is asked to stop first."""
    view = await find_request(call, id)
    request_id, caller = view.request.id, call.caller

    def command(tx: Tx) -> bool:
        tx.audit(
            caller.identity, "request.delete", request_id, {"subject": str(view.request.subject)}
        )
        if request_id not in tx.state.requests:
            tx.delete_request(request_id)
            return True
        return commands.cancel(tx.state, request_id, tx.now, actor=caller.name).ended

    if not await call.context.execute(command):
        return answer(
            (await show(call, [await find_request(call, request_id)], explain=False))[0], 202
        )
    if not view.request.ended:
        # What waited has ended with the transaction above; only what has ended can be removed.
        await call.context.execute(lambda tx: tx.delete_request(request_id))
    return nothing()


@router.post("/requests/{id}/renew", responses={200: ok(HeldOut, examples.HELD)})
async def renew(id: RequestRef, call: ThisCall, body: RenewIn | None = None) -> Response:
    """Extend the lease of a waiter or a holder. The answer is the request as it is: a holder that
    reads `preempting` must stop, and has been told by this. With `wait` the answer may take that
    long when there is nothing new: for a holder, who says its `attempt`, at most 10 s, for a
    waiter, who says none, at most 50 s."""
    given = body or RenewIn(running=None, wait=0, hint=0)

    def command(tx: Tx, request_id: str) -> None:
        if tx.state.requests[request_id].work is not None:
            return  # agents hold it, and say how it is; whoever waits for it may still ask
        commands.renew(tx.state, request_id, tx.now, attempt=given.attempt, running=given.running)

    # Renewing twice is renewing once, so nothing is remembered under a key.
    act = partial(_act, call, id, command, remember=False, lasting=False)
    found = await (_wait_for_news(call, id, given, act) if given.wait else act())
    if isinstance(found, RequestView):
        _check_fence(found, given.attempt)
        found = (await show(call, [found], explain=False))[0]
    return answer(_for_holder(call, found))


def _for_holder(call: Call, shown: Json) -> Json:
    """A request with the sign of the server that its lease is kept with."""
    database = call.context.store.file
    return {**shown, "presence": "" if database is None else name_of(database)}


@router.post("/requests/{id}/said", responses={200: ok(RequestOut, examples.GRANTED)})
async def said(id: RequestRef, body: SaidIn, call: ThisCall) -> Response:
    """Take the answer of work that its client holds to the ask to save itself: it is saving, needs
    longer, or has a verified checkpoint. The response shows the result under
    `allocation.parting`."""
    told = commands.Said(
        body.kind,
        seconds=parse_duration(body.seconds, "seconds"),
        text=body.text,
        checkpoint=body.checkpoint,
        size=body.size,
        hint=body.hint,
        ids=tuple(body.ids),
    )
    if body.kind == "saved" and not body.checkpoint:
        raise Invalid("checkpoint", "must name the checkpoint that was saved")

    def command(tx: Tx, request_id: str) -> None:
        request = tx.state.requests[request_id]
        if request.work is not None:
            raise Conflict("agents_work", f"request {request_id} is run by agents, which say this")
        attempt = request.attempt if body.attempt is None else body.attempt
        commands.said(tx.state, request_id, told, tx.now, attempt=attempt)

    found = await _act(call, id, command)
    if isinstance(found, RequestView):
        raise _ended(found)
    return answer(found)


@router.post("/requests/{id}/release", responses={200: ok(RequestOut, examples.GRANTED)})
async def release(id: RequestRef, call: ThisCall, body: ReleaseIn | None = None) -> Response:
    """Give the units back: the work is done, has failed, or has stopped because it was asked to."""
    given = body or ReleaseIn()

    def command(tx: Tx, request_id: str) -> None:
        commands.release(
            tx.state,
            request_id,
            tx.now,
            outcome=given.outcome,
            attempt=given.attempt,
            exit_code=given.exit_code,
        )

    found = await _act(call, id, command)
    if not isinstance(found, RequestView):
        return answer(found)
    _check_fence(found, given.attempt)
    if _RELEASED.get(found.request.status) != given.outcome:
        raise _ended(found)
    return answer((await show(call, [found], explain=False))[0])


@router.post("/requests/{id}/hand-over", responses={200: ok(RequestOut, examples.GRANTED)})
async def hand_over(id: RequestRef, body: HandOverIn, call: ThisCall) -> Response:
    """Let the agent of its node run what its client was granted and has not started. If that node
    is the caller's own machine, as `here` says, nothing changes and `work` stays null."""
    work = parse_work(body.work.model_dump())

    def command(tx: Tx, request_id: str) -> None:
        if not _is_here(tx.state, request_id, body.here):
            commands.hand_over(tx.state, request_id, work, tx.now, attempt=body.attempt)

    found = await _act(call, id, command)
    if isinstance(found, RequestView):
        raise _ended(found)
    return answer(found)


def _is_here(state: State, request_id: str, here: MachineIn | None) -> bool:
    """Whether the only node that it holds is the machine of its caller."""
    held = state.allocation_of(request_id)
    if here is None or held is None or len(held.members) != 1:
        return False
    node = state.nodes[held.members[0].node_id]
    return (node.name, node.boot) == (here.name, here.boot)


@router.post("/requests/{id}/cancel", responses={200: ok(RequestOut, examples.REQUEST)})
async def cancel(id: RequestRef, call: ThisCall) -> Response:
    """End a waiter at once; ask a holder to stop, after which it is cancelled. The id of an array
    is all of its tasks, `ID_7` one of them."""
    caller = call.caller
    whole = (await find(call, id)).whole

    def command(tx: Tx, request_id: str) -> None:
        _cancel(tx, request_id, caller, whole=whole)

    found = await _act(call, id, command)
    if not isinstance(found, RequestView):
        return answer(found)
    request = found.request
    if whole and await call.context.execute(lambda tx: _cancel_parts(tx, request.id, caller)):
        return answer((await show(call, [found], explain=False))[0])
    if found.request.status is not RequestStatus.CANCELLED:
        raise _ended(found)
    return answer((await show(call, [found], explain=False))[0])


def _cancel(tx: Tx, request_id: str, caller: Caller, *, whole: bool) -> None:
    if whole:
        _cancel_parts(tx, request_id, caller)
        return
    commands.cancel(tx.state, request_id, tx.now, actor=caller.name)
    if caller.bound is None:
        tx.audit(caller.identity, "request.cancel", request_id, {})


def _cancel_parts(tx: Tx, first_id: str, caller: Caller) -> int:
    """Every part that is alive, also when the first of them has ended; how many."""
    alive = commands.parts(tx.state, first_id)
    for each in alive:
        commands.cancel(tx.state, each.id, tx.now, actor=caller.name)
    if alive and caller.bound is None:
        tx.audit(caller.identity, "request.cancel", first_id, {"parts": len(alive)})
    return len(alive)


Tried = Annotated[bool, Query(description="Also try out which changes would start it now.")]


@router.get("/requests/{id}/why", responses={200: ok(Anything, examples.WHY)})
async def why(id: RequestRef, call: ThisCall, changes: Tried = True) -> Response:
    """Why a request waits, what blocks it, and what would change the answer; computed now."""
    request_id = (await find_request(call, id, named=True)).request.id
    caller = call.caller

    def read(state: State, now: int) -> bytes:
        if request_id not in state.requests:
            return b""
        story = engine_explain.why(state, request_id, now, tried=changes)
        story = redact.seen_by(caller, state, story)
        text: bytes = orjson.dumps(story)
        return text

    text = await call.costly("why", (request_id, changes, caller.bound), read)
    if text:
        story: Json = orjson.loads(text)
    else:
        shown = (await show(call, [await find_request(call, request_id)], explain=False))[0]
        names = ("status", "attempt", "preempted_count", "labels", "reason")
        story = {"request": request_id} | {name: shown[name] for name in names}
    if story["status"] in ("preempting", "preempted") or story.get("last_stopped"):
        story |= await _weighed(call, request_id)
    return answer(story)


# A stop and what follows it until its request is asked about; what is further back is not told.
_EVENTS_LOOKED_AT = 50


async def _weighed(call: Call, request_id: str) -> Json:
    """The holders weighed by the preemption that last stopped a request, if its event has them."""
    context = call.context
    events = await context.read(
        context.store.events_before,
        bounds.AMOUNT_MAX,
        limit=_EVENTS_LOOKED_AT,
        request_id=request_id,
    )
    stops = [each for each in events if each.kind == "preempting"]
    weighed = stops[-1].data.get("weighed") if stops else None
    if not weighed:
        return {}

    def seen(state: State, now: int) -> Any:
        return redact.seen_by(call.caller, state, weighed)

    return {"weighed": await context.query(seen)}


async def _act(
    call: Call, ref: str, act: Any, *, remember: bool = True, lasting: bool = True
) -> Json | RequestView:
    """Do something to a live request and answer it; one that has ended is given back as it is."""
    caller = call.caller
    idempotency = await call.idempotency()
    request_id = ref if len(ref) == _ID_LENGTH else (await find_request(call, ref)).request.id

    def command(tx: Tx) -> str:
        request = tx.state.requests.get(request_id)
        if request is None or not caller.sees(request.subject):
            raise NotFound("request", ref)
        act(tx, request_id)
        return request_id

    try:
        shown: Json = await call.context.execute(
            command,
            idempotency=idempotency if remember else None,
            answer=lambda found, tx: live_request_out(tx.state, found),
            lasting=lasting,
        )
    except NotFound:
        return await find_request(call, request_id)
    if caller.bound is not None:
        redact.request(shown)
    return shown


async def _wait_for_news(
    call: Call, id: str, given: RenewIn, renew: Callable[[], Awaitable[Json | RequestView]]
) -> Json | RequestView:
    """Renew; if the caller knows everything already, again when there is news, or not at all."""
    board = call.context.writer.order_board
    request_id = id if len(id) == _ID_LENGTH else (await find_request(call, id)).request.id
    # From before the renewal, so that nothing is missed. A waiter's renewal is no news to it.
    with board.standing(request_id) as news, board.standing(request_id, but=WAITING) as moved:
        found = await renew()
        if isinstance(found, RequestView) or board.closed:
            return found
        if found["status"] in WAITING:
            most, awaited = bounds.NEWS_WAIT_MAX, moved
        elif given.attempt is not None and _standing_hint(found) == given.hint:
            most, awaited = bounds.RENEW_WAIT_MAX, news
        else:
            return found
        seconds = min(parse_duration(given.wait, "wait"), most) / bounds.SECOND
        await asyncio.wait([awaited], timeout=seconds)
    return await renew() if awaited.done() else found


def _standing_hint(shown: Json) -> int | None:
    """The number of the hint that stands, 0 for a holder without; None for who need not wait."""
    held = shown["allocation"]
    if held is None or held["state"] in ("stopping", "ended"):
        return None
    if held["state"] == "checkpointing":
        return int(held["parting"]["hint"])
    return 0 if held["asked"] is None else int(held["asked"]["hint"])


def _check_fence(view: RequestView, attempt: int | None) -> None:
    if attempt is not None and attempt != view.request.attempt:
        raise Conflict(
            "stale_fence", f"attempt {attempt} is over; the request ended at {view.request.attempt}"
        )


def _ended(view: RequestView) -> Conflict:
    request = view.request
    return Conflict("already_ended", f"request {request.id} has already ended: {request.status}")


def _labels(request: HttpRequest) -> dict[str, str]:
    labels = {
        name.removeprefix(LABEL_PREFIX): value
        for name, value in request.query_params.items()
        if name.startswith(LABEL_PREFIX)
    }
    if len(labels) > bounds.LABELS_MAX:
        detail = f"at most {bounds.LABELS_MAX} labels, not {len(labels)}"
        raise Problem(422, "invalid", detail, field=LABEL_PREFIX)
    for name, value in labels.items():
        if "\0" in name + value or max(len(name), len(value)) > bounds.LABEL_LENGTH_MAX:
            most = bounds.LABEL_LENGTH_MAX
            detail = f"names and values of labels have at most {most} characters and no NUL"
            raise Problem(422, "invalid", detail, field=LABEL_PREFIX)
    return labels

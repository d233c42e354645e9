"""The output of work: kept on its node, and passed on from there to callers that may see the
request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from cede.model import bounds
from cede.model.allocation import Allocation, Member, Phase, allocation_id
from cede.model.errors import Conflict, NotFound
from cede.model.node import SILENT_AFTER
from cede.server.api.context import Call, Context, ThisCall
from cede.server.api.errors import unavailable
from cede.server.api.events import STREAMS_MAX
from cede.server.api.finding import find_request
from cede.server.api.permissions import API
from cede.server.api.problem import Problem
from cede.server.api.relay import About, Piece, no_order
from cede.server.api.requests import RequestRef
from cede.server.api.route import CedeRoute

router = APIRouter(prefix=API, tags=["requests"], route_class=CedeRoute)

# How often a log that is followed is read while nothing is written.
FOLLOW_SECONDS = 0.5
OFFSET = "Cede-Log-Offset"
# The first protocol of agents that know the order of the streams.
KNOWS_ORDER = 2

Task = Annotated[int, Query(ge=0, lt=bounds.TASKS_MAX, description="Which task, from 0.")]
AttemptNumber = Annotated[
    int | None,
    Query(ge=1, le=bounds.AMOUNT_MAX, description="Absent: the latest that was granted."),
]
Offset = Annotated[int, Query(ge=0, le=bounds.AMOUNT_MAX, description="Bytes to leave out.")]
Tail = Annotated[
    int | None,
    Query(ge=0, le=bounds.LOG_TAIL_MAX, description="The last lines only, within the last MiB."),
]
Since = Annotated[
    float | None,
    Query(ge=0, le=bounds.AMOUNT_MAX, description="Printed then, in Unix time, or later."),
]
Age = Annotated[
    float | None,
    Query(ge=0, le=bounds.AMOUNT_MAX, description="Printed so many seconds ago or later."),
]
Follow = Annotated[bool, Query(description="Go on until the task has ended.")]

_BYTES = {
    "description": f"The bytes as they were written; {OFFSET} says where the first of them is.",
    "content": {"text/plain": {"schema": {"type": "string"}, "example": "epoch 1: loss 0.71\n"}},
}


@router.get("/requests/{id}/logs", response_class=StreamingResponse, responses={200: _BYTES})
async def logs(
    id: RequestRef,
    call: ThisCall,
    task: Task = 0,
    stream: Literal["stdout", "stderr", "both"] = "stdout",
    attempt: AttemptNumber = None,
    offset: Offset = 0,
    follow: Follow = False,
    tail: Tail = None,
    since: Since = None,
    age: Age = None,
) -> Response:
    """The output of a task, from its node. Rotated output is left out. `both` has the streams in
    the order in which they were written; offsets then count both."""
    context = call.context
    if context.streams >= STREAMS_MAX:
        raise unavailable("too_many_streams", f"{STREAMS_MAX} streams are open already", 5)
    allocation, member = await _member(call, id, attempt, task)
    about = About(
        allocation_id(allocation.request_id, allocation.attempt),
        allocation.attempt,
        task,
        stream,
        offset,
        tail,
        since,
        age,
    )
    _check_node(context, member.node_id, about)
    # The first piece is read before the answer begins, so that an error can still be reported.
    first = await context.relay.ask(member.node_id, about)
    headers = {OFFSET: str(first.offset), "X-Accel-Buffering": "no"}
    pieces = _pieces(call, member.node_id, about, first, follow)
    return StreamingResponse(pieces, 200, headers, "text/plain; charset=utf-8")


def _check_node(context: Context, node_id: str, about: About) -> None:
    posted = context.writer.order_board.posted.get(node_id)
    if posted is None:
        raise Problem(409, "logs_gone", "the node that this ran on was deleted")
    node, heard = posted.node, context.writer.order_board.heard_at(node_id)
    silent = context.writer.now() - heard
    if silent > SILENT_AFTER * node.heartbeat:
        raise unavailable(
            "node_silent",
            f"node {node.name} was not heard of for {silent // bounds.SECOND} seconds; the logs "
            "are on it, not here",
            10,
        )
    if about.needs_order and node.protocol < KNOWS_ORDER:
        raise no_order()


async def _member(
    call: Call, ref: str, attempt: int | None, task: int
) -> tuple[Allocation, Member]:
    view = await find_request(call, ref, named=True)
    request, allocation = view.request, view.allocation
    if request.work is None:
        raise Conflict("no_logs", "its client runs this work, and has what it wrote")
    if attempt is not None and (allocation is None or allocation.attempt != attempt):
        store = call.context.store
        allocation = await call.context.read(store.get_allocation, request.id, attempt)
    if allocation is None:
        raise Conflict("no_logs", "it has not started; there is nothing to read yet")
    if task >= len(allocation.members):
        raise NotFound("task", str(task))
    return allocation, allocation.members[task]


async def _pieces(
    call: Call, node_id: str, about: About, piece: Piece, follow: bool
) -> AsyncIterator[bytes]:
    context = call.context
    context.streams += 1
    over = False
    try:
        while True:
            if piece.data:
                yield piece.data
            if (piece.end and not piece.data) or context.pulse.closed:
                return
            if not piece.data:
                if over or not follow:
                    return
                await asyncio.sleep(FOLLOW_SECONDS)
                if not await _still_allowed(context, call):
                    return
                # Read before the last question: an ended task has written by then. An agent may
                # know of no end, where nothing was ever started.
                over = await _is_over(context, about)
            about = about.after(piece.offset + len(piece.data))
            try:
                piece = await context.relay.ask(node_id, about)
            except Problem:
                return  # the answer has begun: a following client asks again from where it ended
            if follow and piece.offset > about.offset:
                return  # rotated away meanwhile: a following client learns the new offset by asking
    finally:
        context.streams -= 1


async def _is_over(context: Context, about: About) -> bool:
    request_id = about.allocation.rpartition(".")[0]
    found = await context.read(context.store.get_allocation, request_id, about.attempt)
    return found is None or not found.live or found.members[about.task].phase is Phase.ENDED


async def _still_allowed(context: Context, call: Call) -> bool:
    try:
        await context.auth.recheck(call.caller.token.hash)
    except Problem:
        return False
    return True

"""Routes of snapshot and plan: the living state as data, and what the engine would do from such
data."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated, Any

import orjson
import structlog
from fastapi import APIRouter, Query
from starlette.responses import Response

from cede.engine.state.state import State
from cede.model import bounds
from cede.model.errors import Invalid
from cede.server.api import examples, plan_process
from cede.server.api.context import ThisCall
from cede.server.api.errors import unavailable
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.problem import Problem
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import Anything
from cede.snapshot import writer as snapshot

router = APIRouter(prefix=API, tags=["plan"], route_class=CedeRoute)

# One at a time, and at most a few waiting for it.
PLANS_MAX = 4
# Somewhat more than the process's own bound, for a machine that is busy.
PLAN_SECONDS = 2 * plan_process.CPU_SECONDS

Horizon = Annotated[
    float | None,
    Query(ge=0, le=bounds.DURATION_MAX // bounds.SECOND, description="Seconds to look ahead."),
]

_log = structlog.get_logger("cede.api")


@router.get("/snapshot", responses={200: ok(Anything, {"now": 300.2, "pools": [], "policies": []})})
async def get_snapshot(call: ThisCall) -> Response:
    """The whole living state, in the form that `/plan` takes."""

    def read(state: State, now: int) -> bytes:
        text: bytes = orjson.dumps(snapshot.dump(state, now))
        return text

    found = await call.costly("snapshot", (), read)
    return Response(found, media_type="application/json")


# The body is not a parameter: only the process that plans it reads it.
_SNAPSHOT = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "title": "Body",
                    "additionalProperties": True,
                    "examples": [{"now": 0, "pools": [], "policies": []}],
                }
            }
        },
    }
}


@router.post("/plan", responses={200: ok(Anything, examples.PLAN)}, openapi_extra=_SNAPSHOT)
async def plan(call: ThisCall, until_rest: bool = False, horizon: Horizon = None) -> Response:
    """Plan: what the engine would decide from a snapshot. Nothing is changed."""
    context = call.context
    if context.plans >= PLANS_MAX:
        raise unavailable("too_many_plans", f"{PLANS_MAX} plans are being made already", 2)
    context.plans += 1
    try:
        body = await call.request.body()
        async with context.planning:
            out = await _in_its_own_process({"until_rest": until_rest, "horizon": horizon}, body)
    finally:
        context.plans -= 1
    if out.startswith(plan_process.REFUSED):
        raise Problem(**json.loads(out.removeprefix(plan_process.REFUSED)))
    return Response(out, media_type="application/json")


async def _in_its_own_process(asked: dict[str, Any], snapshot: bytes) -> bytes:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", plan_process.__name__, stdin=pipe, stdout=pipe, stderr=pipe
    )
    try:
        sent = json.dumps(asked).encode() + b"\n" + snapshot
        async with asyncio.timeout(PLAN_SECONDS):
            out, err = await process.communicate(sent)
    except TimeoutError:
        raise _too_long() from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        # Out of time or memory, most likely: the snapshot was too much, not the server.
        _log.warning(
            "a plan ended", code=process.returncode, said=err[-500:].decode("utf-8", "replace")
        )
        raise _too_long()
    return out


def _too_long() -> Invalid:
    most = plan_process.CPU_SECONDS
    return Invalid("body", f"planning this takes more than {most} seconds or too much memory")

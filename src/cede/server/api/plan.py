"""What if: the living state as data, and what the engine would do from any such data."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from cede.engine import snapshot
from cede.model import bounds
from cede.server.api import examples
from cede.server.api.context import ThisCall, answer
from cede.server.api.errors import unavailable
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import Anything
from cede.sim import plan as sim_plan

router = APIRouter(prefix=API, tags=["plan"], route_class=CedeRoute)

# Planning is the engine's work, on the machine that also decides for real: one at a time, and not
# more than a few waiting for it.
PLANS_MAX = 4

Horizon = Annotated[
    float | None,
    Query(ge=0, le=bounds.DURATION_MAX // bounds.SECOND, description="Seconds to look ahead."),
]


@router.get("/snapshot", responses={200: ok(Anything, {"now": 300.2, "pools": [], "policies": []})})
async def get_snapshot(call: ThisCall) -> Response:
    """The whole living state, in the form that `/plan` takes."""
    found = await call.context.query(snapshot.dump)
    return await run_in_threadpool(answer, found)


@router.post("/plan", responses={200: ok(Anything, examples.PLAN)})
async def plan(
    body: Annotated[dict[str, Any], Body(examples=[{"now": 0, "pools": [], "policies": []}])],
    call: ThisCall,
    until_rest: bool = False,
    horizon: Horizon = None,
) -> Response:
    """What the engine would decide from a snapshot. Nothing is changed."""
    context = call.context
    if context.plans >= PLANS_MAX:
        raise unavailable("too_many_plans", f"{PLANS_MAX} plans are being made already", 2)
    context.plans += 1
    try:
        async with context.planning:
            made = await run_in_threadpool(
                sim_plan.run, body, until_rest=until_rest, horizon=horizon
            )
    finally:
        context.plans -= 1
    return answer(made)

"""Routes of history: requests that have ended, and the levels of pools over time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from cede.model import bounds
from cede.model.durations import seconds
from cede.model.errors import Invalid
from cede.model.levels import Levels, means
from cede.server.api import examples
from cede.server.api.context import ThisCall, answer
from cede.server.api.json_type import Json
from cede.server.api.lists import Component, Cursor, Limit, PoolFilter, PoolRef, show
from cede.server.api.openapi import ok
from cede.server.api.period import From, Period, Since, To, cost_of, period_of, time_of
from cede.server.api.permissions import API
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import Out, Page, RequestOut
from cede.server.api.tenant_schemas import hours_out
from cede.store.past import PastView

router = APIRouter(prefix=API, tags=["history"], route_class=CedeRoute)

# Widths of points that people can read off an axis, in seconds.
STEPS = (60, 300, 900, 3_600, 10_800, 21_600, 43_200, 86_400)
# The number of points of a chart, if no width is given.
_POINTS = 180
# How far back a chart reaches, if no period is given.
_DAY_SECONDS = bounds.DAY / bounds.SECOND

User = Annotated[
    str | None,
    Query(min_length=1, max_length=2 * bounds.NAME_LENGTH_MAX, description="Only of this owner."),
]
Step = Annotated[
    int | None,
    Query(
        ge=60,
        le=86_400,
        description="Seconds that one point is the mean of; absent: such that there are about 180.",
    ),
]


class LevelOut(Out):
    capacity: float
    used: float
    borrowed: float = Field(description="The used part that no share covers.")
    free: float
    waiting: float = Field(description="What waiters ask for, together.")


class PointOut(Out):
    at: str = Field(description="The beginning of the span that this is the mean of.")
    waiting_requests: float
    keys: dict[str, LevelOut]


class PoolHistoryOut(Out):
    pool: str
    step: int = Field(description="Seconds.")
    items: list[PointOut] = Field(description="In the order of time; none before the first note.")


class PastOut(Out):
    request: RequestOut
    ended: str
    waited: float | None = Field(description="Seconds until its first grant; null: it had none.")
    node_hours: float
    gpu_hours: float
    hours: dict[str, float] = Field(description="Of every key.")
    lost_gpu_hours: float
    lost_hours: dict[str, float] = Field(
        description="Of them: since its last checkpoint, of attempts that were stopped for "
        "others or ended by their machine."
    )
    cost: float | None = Field(description="By what its pools cost now; null: they say nothing.")


class PastPage(Page):
    items: list[PastOut]


_PAST = {
    "request": examples.REQUEST,
    "ended": "2026-03-02T12:00:10.000Z",
    "waited": 12.5,
    "node_hours": 3.0,
    "gpu_hours": 12.0,
    "hours": {"gpu": 12.0, "step_run": 3.0},
    "lost_gpu_hours": 1.5,
    "lost_hours": {"gpu": 1.5, "step_run": 0.375},
    "cost": 30.0,
}
_LEVELS = {
    "pool": "gpus",
    "step": 300,
    "items": [
        {
            "at": "2026-03-02T12:00:00.000Z",
            "waiting_requests": 1.0,
            "keys": {
                "gpu": {"capacity": 8.0, "used": 6.0, "borrowed": 2.0, "free": 2.0, "waiting": 4.0}
            },
        }
    ],
}


@router.get("/history", responses={200: ok(PastPage, examples.page(_PAST))})
async def get_history(
    call: ThisCall,
    limit: Limit,
    since: Since = None,
    begin: From = None,
    end: To = None,
    pool: PoolFilter = None,
    component: Component = None,
    user: User = None,
    cursor: Cursor = None,
) -> Response:
    """Requests that ended in a period, the last first, with what each held, lost and cost."""
    context = call.context
    period = await period_of(context, since, begin, end)
    pool_id = None
    if pool is not None:
        pool_id = (await context.read(context.store.get_pool, pool)).id
    page = await context.read(
        context.store.past_requests,
        since=period.since,
        until=period.until,
        subjects=call.caller.bound,
        component=component,
        owner=user,
        pool_id=pool_id,
        cursor=cursor,
        limit=limit,
    )
    requests = await show(call, [each.view for each in page.items], explain=False, whole=False)
    costs = await context.read(context.store.pool_costs)
    items = [
        _past(each, request, period, costs)
        for each, request in zip(page.items, requests, strict=True)
    ]
    return answer({"items": items, "next": page.next})


def _past(
    each: PastView, request: Json, period: Period, costs: dict[str, dict[str, float]]
) -> Json:
    submitted = each.view.request.submitted_at
    cost = cost_of(each.pools, costs)
    return {
        "request": request,
        "ended": period.time(each.ended_at),
        "waited": None if each.began is None else seconds(max(0, each.began - submitted)),
        **hours_out(each.usage, each.lost),
        "cost": None if cost is None else round(cost, 6),
    }


@router.get("/pools/{pool}/history", responses={200: ok(PoolHistoryOut, _LEVELS)})
async def get_pool_history(
    pool: PoolRef,
    call: ThisCall,
    since: Since = None,
    begin: From = None,
    end: To = None,
    step: Step = None,
) -> Response:
    """The levels of a pool: capacity, used, borrowed, free and waited for, as means of equal
    spans, of the last day unless a period is given. They are noted every minute; of more than a
    day ago means of hours are kept, for 400 days."""
    context = call.context
    found = await context.read(context.store.get_pool, pool)
    back = _DAY_SECONDS if since is None and begin is None else since
    period = await period_of(context, back, begin, end)
    edges, width = _edges(period, step)
    levels = await context.read(context.store.levels, found.id, edges[0], edges[-1])
    points = [each for each in means(levels, edges) if each is not None]
    items = [_point(each, period) for each in points]
    return answer({"pool": found.name, "step": width, "items": items})


def _edges(period: Period, step: int | None) -> tuple[list[int], int]:
    """Return the edges of points: at full steps of the time of day, the last one at the period's
    end."""
    wall, last = period.wall, period.now if period.until is None else min(period.until, period.now)
    begin, end = wall.time(period.since or 0), wall.time(last)
    span = max(0, end - begin) / bounds.SECOND
    width = step or next((each for each in STEPS if span / each <= _POINTS), STEPS[-1])
    if span / width > bounds.HISTORY_POINTS_MAX:
        most = bounds.HISTORY_POINTS_MAX
        raise Invalid("step", f"makes more than {most} points of this period; give a larger one")
    wide = width * bounds.SECOND
    times = range(begin // wide * wide, end, wide)
    edges = [wall.instant(each) for each in times]
    return [*edges, max(last, edges[-1] + 1 if edges else last + 1)], width


def _point(levels: Levels, period: Period) -> Json:
    keys = {
        key: {**each._asdict(), "free": round(max(0.0, each.capacity - each.used), 3)}
        for key, each in levels.keys.items()
    }
    at = time_of(period.wall, levels.at)
    return {"at": at, "waiting_requests": levels.requests, "keys": keys}

"""The route of usage: what each pool, policy, team, user, tenant or label held, and for how
long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from cede.model import bounds
from cede.model.errors import Invalid
from cede.model.usage import PROJECT
from cede.server.api.context import Call, Context, ThisCall
from cede.server.api.json_type import Json
from cede.server.api.openapi import ok
from cede.server.api.period import From, Since, To, cost_of, period_of
from cede.server.api.permissions import API
from cede.server.api.route import CedeRoute
from cede.server.api.tenant_schemas import USAGE, UsageOut, used_out
from cede.store import UsageView
from cede.store.usage import By

router = APIRouter(prefix=API, tags=["tenants"], route_class=CedeRoute)

Label = Annotated[
    str,
    Query(
        min_length=1,
        max_length=bounds.NAME_LENGTH_MAX,
        description="With `by=label`: which one. Of requests that were removed, `project` alone is "
        "known.",
    ),
]
Days = Annotated[
    bool,
    Query(description="Told apart by days of UTC, in their order; at most the last 400 of them."),
]
_FIRST_DAY = date(1970, 1, 1)


@router.get("/usage", responses={200: ok(UsageOut, USAGE)})
async def get_usage(
    call: ThisCall,
    by: By = By.POOL,
    since: Since = None,
    begin: From = None,
    end: To = None,
    days: Days = False,
    label: Label = PROJECT,
) -> Response:
    """Node-hours, GPU-hours and the hours of every key, what of them was lost, and what they
    cost, by pool, policy, team, user, tenant or label: from grants to their ends, or to now. A
    token that is bound to subjects sees what their policies held."""
    return await call.shared(partial(_report, call, by, since, begin, end, days, label))


async def _report(
    call: Call,
    by: By,
    since: float | None,
    begin: datetime | None,
    end: datetime | None,
    days: bool,
    label: str,
) -> Json:
    context = call.context
    period = await period_of(context, since, begin, end)
    if days and period.since is None:
        raise Invalid("days", "needs a beginning: give from or since")
    found = await context.report(
        context.store.usage,
        by,
        period.now,
        since=period.since,
        until=period.until,
        days=days,
        subjects=call.caller.bound,
        label=label,
    )
    costs = await context.read(context.store.pool_costs)
    items = await _named(context, by, found)
    for each, view in zip(items, found, strict=True):
        each["day"] = None if view.day is None else str(_FIRST_DAY + timedelta(view.day))
        cost = cost_of(view.pools, costs)
        each["cost"] = None if cost is None else round(cost, 6)
    return {"by": str(by), "since": since, **period.shown(), "items": items}


async def _named(context: Context, by: By, found: Sequence[UsageView]) -> list[Json]:
    if by not in (By.POOL, By.POLICY):
        return [used_out(each, each.id) for each in found]
    ids = [each.id for each in found if each.id is not None]
    if by is By.POOL:
        pools = await context.pool_names(ids)
        return [used_out(each, pools.get(each.id or "", each.id)) for each in found]
    policies = await context.read(context.store.policy_names, ids)
    pools = await context.pool_names(pool_id for _, pool_id in policies.values())
    shown = []
    for each in found:
        name, pool_id = policies.get(each.id or "", (each.id, ""))
        shown.append(used_out(each, name, pools.get(pool_id)))
    return shown

"""Usage: what was held, by whom and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from cede.model import bounds
from cede.model.durations import parse_duration
from cede.server.api.context import Context, ThisCall, answer
from cede.server.api.json_type import Json
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.route import CedeRoute
from cede.server.api.tenant_schemas import USAGE, UsageOut, used_out
from cede.store import UsageView
from cede.store.accounts import By

router = APIRouter(prefix=API, tags=["tenants"], route_class=CedeRoute)

Since = Annotated[
    float | None,
    Query(
        ge=0,
        le=bounds.DURATION_MAX // bounds.SECOND,
        description="Only what was held in the last so many seconds; absent: in all time.",
    ),
]


@router.get("/usage", responses={200: ok(UsageOut, USAGE)})
async def get_usage(call: ThisCall, by: By = By.POOL, since: Since = None) -> Response:
    """Node-hours, GPU-hours and the hours of every key, by pool, policy or tenant: from grants to
    their ends, or to now. A token that is bound to subjects sees what their policies held."""
    context = call.context
    now = context.writer.now()
    begin = None if since is None else max(0, now - parse_duration(since, "since"))
    found = await context.read(
        context.store.usage, by, now, since=begin, subjects=call.caller.bound
    )
    return answer({"by": str(by), "since": since, "items": await _named(context, by, found)})


async def _named(context: Context, by: By, found: Sequence[UsageView]) -> list[Json]:
    if by is By.TENANT:
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

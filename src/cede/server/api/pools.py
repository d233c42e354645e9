"""Routes of pools: capacity by name, and what is in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fastapi import APIRouter
from starlette.responses import Response

from cede.engine.admin import edits, quarantine
from cede.engine.explain.contents import Contents, contents
from cede.engine.state.state import State
from cede.model.errors import NotFound
from cede.model.pool import Pool
from cede.server.api import examples
from cede.server.api.bodies import PoolIn, PoolPatch
from cede.server.api.context import Call, ThisCall, answer, nothing
from cede.server.api.dry_run import DryRun, tried
from cede.server.api.json_type import Json
from cede.server.api.lists import Cursor, Explain, Limit, PoolRef, list_requests
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.resolve import pool_in
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import DryRunOut, PoolOut, PoolPage, RequestPage
from cede.server.api.views import pool_out
from cede.server.ids import new_id
from cede.server.writer import Tx
from cede.store.filters import RequestFilter

router = APIRouter(prefix=API, tags=["pools"], route_class=CedeRoute)


@router.get("/pools", responses={200: ok(PoolPage, examples.page(examples.POOL))})
async def list_pools(call: ThisCall, limit: Limit, cursor: Cursor = None) -> Response:
    """Every pool, by name, with what is occupied and free."""
    context = call.context

    async def found() -> Json:
        page = await context.read(context.store.list_pools, cursor=cursor, limit=limit)
        return {"items": await _shown(call, page.items), "next": page.next}

    return await call.shared(found)


@router.post("/pools", status_code=201, responses={201: ok(PoolOut, examples.POOL, "Created")})
async def create_pool(body: PoolIn, call: ThisCall) -> Response:
    """Make a pool."""
    actor = call.caller.identity

    def command(tx: Tx) -> Json:
        pool = edits.create_pool(
            tx.state,
            id=new_id(),
            name=body.name,
            capacity=body.capacity,
            nodes=body.nodes,
            preset=body.preset,
            settings=body.settings,
            description=body.description,
            created=tx.wall,
        )
        tx.audit(actor, "pool.create", pool.id, body.model_dump(exclude_defaults=True))
        return pool_out(Contents(pool, {}, {}, 0, 0))

    made = await call.context.execute(command, idempotency=await call.idempotency())
    return answer(made, 201)


@router.get("/pools/{pool}", responses={200: ok(PoolOut, examples.POOL)})
async def get_pool(pool: PoolRef, call: ThisCall) -> Response:
    """One pool, by name, id or the start of its id."""
    return await call.shared(lambda: _one(call, pool))


@router.patch("/pools/{pool}", responses={200: ok(PoolOut | DryRunOut, examples.POOL)})
async def update_pool(
    pool: PoolRef, body: PoolPatch, call: ThisCall, dry_run: DryRun = False
) -> Response:
    """Change capacity (merged; 0 removes a key), the labels of its nodes, settings or description.

    Running work stays; waiters that ask for more than there will be are paused.
    """
    actor = call.caller.identity

    def edit(state: State, now: int) -> str:
        found = pool_in(state, pool)
        edits.update_pool(
            state,
            found.id,
            capacity=body.capacity,
            nodes=body.nodes,
            settings=body.settings,
            description=body.description,
        )
        return found.id

    def command(tx: Tx) -> str:
        pool_id = edit(tx.state, tx.now)
        tx.audit(actor, "pool.update", pool_id, body.model_dump(exclude_none=True))
        return pool_id

    if dry_run:
        return await tried(call, edit)
    pool_id = await call.context.execute(command)
    return answer(await _one(call, pool_id))


@router.post("/pools/{pool}/enable", responses={200: ok(PoolOut, examples.POOL)})
async def enable_pool(pool: PoolRef, call: ThisCall) -> Response:
    """End the quarantine of a pool after a restore: the caller vouches that nothing unknown is
    held in it."""
    actor = call.caller.identity

    def command(tx: Tx) -> str:
        found = pool_in(tx.state, pool)
        quarantine.enable_pool(tx.state, found.id, tx.now)
        tx.audit(actor, "pool.enable", found.id, {"name": found.name})
        return found.id

    pool_id = await call.context.execute(command)
    return answer(await _one(call, pool_id))


@router.delete("/pools/{pool}", status_code=204, responses={204: {"description": "Gone"}})
async def delete_pool(pool: PoolRef, call: ThisCall) -> Response:
    """Remove a pool in which nothing is held."""
    actor = call.caller.identity

    def command(tx: Tx) -> None:
        found = pool_in(tx.state, pool)
        edits.delete_pool(tx.state, found.id)
        tx.audit(actor, "pool.delete", found.id, {"name": found.name})

    await call.context.execute(command)
    return nothing()


@router.get(
    "/pools/{pool}/requests", responses={200: ok(RequestPage, examples.page(examples.REQUEST))}
)
async def pool_requests(
    pool: PoolRef,
    call: ThisCall,
    limit: Limit,
    view: Literal["queued", "active", "all"] = "all",
    cursor: Cursor = None,
    explain: Explain = False,
) -> Response:
    """Requests of one pool: those that wait for it, those that hold in it, or both."""
    found = await call.context.read(call.context.store.get_pool, pool)
    wanted = RequestFilter(subjects=call.caller.bound, pool_id=found.id, view=view)
    return await call.shared(lambda: list_requests(call, wanted, cursor, limit, explain))


async def _one(call: Call, ref: str) -> Json:
    pool = await call.context.read(call.context.store.get_pool, ref)
    for shown in await _shown(call, [pool]):
        return shown
    raise NotFound("pool", ref)  # deleted in between


async def _shown(call: Call, pools: Sequence[Pool]) -> list[Json]:
    ids = [each.id for each in pools]
    found = await call.context.query(lambda state, now: contents(state, ids))
    return [pool_out(each) for each in found]

"""Tenants: quotas and budgets across all pools."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from cede.engine.admin import tenant_edits
from cede.server.api import examples
from cede.server.api.context import Call, ThisCall, answer, nothing
from cede.server.api.json_type import Json
from cede.server.api.lists import REFERENCE, Cursor, Limit
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.resolve import tenant_in
from cede.server.api.route import CedeRoute
from cede.server.api.tenant_schemas import (
    TENANT,
    TenantIn,
    TenantOut,
    TenantPage,
    TenantPatch,
    tenant_out,
)
from cede.server.ids import new_id
from cede.server.writer import Tx
from cede.store import TenantView

router = APIRouter(prefix=API, tags=["tenants"], route_class=CedeRoute)

TenantRef = Annotated[
    str, Path(**REFERENCE, description="Its name, its id, or the start of its id.")
]


@router.get("/tenants", responses={200: ok(TenantPage, examples.page(TENANT))})
async def list_tenants(call: ThisCall, limit: Limit, cursor: Cursor = None) -> Response:
    """Every tenant, by name, with what it has in use and the part of its budget it has used."""
    context = call.context
    page = await context.read(
        context.store.list_tenants, context.writer.now(), cursor=cursor, limit=limit
    )
    return answer({"items": [tenant_out(view) for view in page.items], "next": page.next})


@router.post("/tenants", status_code=201, responses={201: ok(TenantOut, TENANT, "Created")})
async def create_tenant(body: TenantIn, call: ThisCall) -> Response:
    """Make a tenant. Requests that gave its name already count; the next read shows what they
    have used of its budget."""
    actor = call.caller.identity

    def command(tx: Tx) -> Json:
        tenant = tenant_edits.create_tenant(
            tx.state, id=new_id(), name=body.name, created=tx.wall, **body.said()
        )
        tx.audit(actor, "tenant.create", tenant.id, body.model_dump(exclude_unset=True))
        counts = tx.state.tenancy
        nodes, alive = (each.get(tenant.name, 0) for each in (counts.held, counts.alive))
        return tenant_out(TenantView(tenant, nodes, alive, None))

    made = await call.context.execute(command, idempotency=await call.idempotency())
    return answer(made, 201)


@router.get("/tenants/{tenant}", responses={200: ok(TenantOut, TENANT)})
async def get_tenant(tenant: TenantRef, call: ThisCall) -> Response:
    """One tenant, by name, id or the start of its id."""
    return answer(await _shown(call, tenant))


@router.patch("/tenants/{tenant}", responses={200: ok(TenantOut, TENANT)})
async def update_tenant(tenant: TenantRef, body: TenantPatch, call: ThisCall) -> Response:
    """Change the given fields; null takes a bound away. Running work stays, whatever the quota."""
    actor = call.caller.identity

    def command(tx: Tx) -> str:
        found = tenant_in(tx.state, tenant)
        tenant_edits.update_tenant(tx.state, found.id, **body.said())
        tx.audit(actor, "tenant.update", found.id, body.model_dump(exclude_unset=True))
        return found.id

    return answer(await _shown(call, await call.context.execute(command)))


@router.delete("/tenants/{tenant}", status_code=204, responses={204: {"description": "Gone"}})
async def delete_tenant(tenant: TenantRef, call: ThisCall) -> Response:
    """Remove a tenant's bounds. Its requests and what it used stay."""
    actor = call.caller.identity

    def command(tx: Tx) -> None:
        found = tenant_in(tx.state, tenant)
        tenant_edits.delete_tenant(tx.state, found.id)
        tx.audit(actor, "tenant.delete", found.id, {"name": found.name})

    await call.context.execute(command)
    return nothing()


async def _shown(call: Call, ref: str) -> Json:
    context = call.context
    return tenant_out(await context.read(context.store.get_tenant, ref, context.writer.now()))

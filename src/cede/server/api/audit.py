"""The audit chain: every privileged action, in the transaction that did it (C13)."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from cede.server.api import examples
from cede.server.api.context import ThisCall, answer
from cede.server.api.lists import Cursor, Limit
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import AuditPage
from cede.server.api.views import audit_out

router = APIRouter(prefix=API, tags=["audit"], route_class=CedeRoute)


@router.get("/audit", responses={200: ok(AuditPage, examples.page(examples.AUDIT))})
async def list_audit(call: ThisCall, limit: Limit, cursor: Cursor = None) -> Response:
    """Who did what to what, newest first; each entry's hash covers the one before."""
    store = call.context.store
    page = await call.context.read(store.list_audit, cursor=cursor, limit=limit)
    return answer({"items": [audit_out(entry) for entry in page.items], "next": page.next})

"""The audit chain: every privileged action, in the transaction that did it (C13)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from cede.model import bounds
from cede.server.api import examples
from cede.server.api.context import ThisCall, answer
from cede.server.api.lists import Cursor, Limit
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import AuditPage, VerifiedOut
from cede.server.api.views import audit_out
from cede.store import chain

router = APIRouter(prefix=API, tags=["audit"], route_class=CedeRoute)

After = Annotated[
    str,
    Query(pattern=r"^[0-9]{1,18}:[0-9a-f]{64}$", description="`end` of the piece before."),
]
Piece = Annotated[int, Query(ge=1, le=bounds.AUDIT_PIECE_MAX)]


@router.get("/audit", responses={200: ok(AuditPage, examples.page(examples.AUDIT))})
async def list_audit(call: ThisCall, limit: Limit, cursor: Cursor = None) -> Response:
    """List what was changed by which token, newest first; each entry's hash covers the one
    before."""
    store = call.context.store
    page = await call.context.read(store.list_audit, cursor=cursor, limit=limit)
    return answer({"items": [audit_out(entry) for entry in page.items], "next": page.next})


@router.get("/audit/verify", responses={200: ok(VerifiedOut, examples.VERIFIED)})
async def verify_audit(
    call: ThisCall, after: After = str(chain.START), limit: Piece = bounds.AUDIT_PIECE_MAX
) -> Response:
    """Verify that entries follow one from the other: at most `limit` of those after `after`."""
    verify = call.context.store.verify_audit
    return answer(chain.to_json(await call.context.read(verify, chain.Link.parse(after), limit)))

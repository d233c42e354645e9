"""What happens around every handler, in this order: authenticate, bound, parse, permission, act.

It is the class of every route, so that no handler can forget a step or do them in another order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any

import structlog
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from cede.server.api import strict_json
from cede.server.api.auth import Caller
from cede.server.api.context import Call, Context
from cede.server.api.errors import Problem
from cede.server.api.permissions import Permission, permission_for

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

QUERY_BYTES_MAX = 8_192
GUESS_COST = 20
LABEL_PREFIX = "label."
# In a route's `openapi_extra`: it takes `label.NAME=VALUE` parameters.
LABEL_FILTERS = "x-label-filters"
INDEX_SEEN = "Cede-Index-Seen"

_INDEX = re.compile(r"[0-9]{1,18}")
_SAFE = ("GET", "HEAD")
_log = structlog.get_logger("cede.api")


class StrictRequest(Request):
    """A request whose body is bounded and whose JSON means one thing only."""

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            declared = self.headers.get("content-length")
            self._body = await strict_json.read_bounded(self.stream(), declared)
        return self._body

    async def parse(self) -> None:
        """Read the JSON now, so that what is wrong with it is said in our words."""
        body = await self.body()
        if body:
            self._json = strict_json.parse(body)


class CedeRoute(APIRoute):
    """Every route of the API. Which role it asks for stands in `permissions.py` only."""

    def get_route_handler(self) -> Handler:
        act = super().get_route_handler()
        known = {field.alias for field in self.dependant.query_params}
        takes_labels = LABEL_FILTERS in (self.openapi_extra or {})
        takes_body = self.body_field is not None

        async def handle(request: Request) -> Response:
            context: Context = request.app.state.cede
            permission = _permission(request.method, self.path)
            if permission.role is not None:
                # Without its database it could not even look up who is calling.
                context.writer.leadership.require()
            caller = await _authenticate(context, request, permission)
            is_change = request.method not in _SAFE and permission.budget == "all"
            if caller is not None and is_change:
                _check_not_rolled_back(context, request, caller)
            _check_query(request, known, takes_labels)
            strict = StrictRequest(request.scope, request.receive)
            if takes_body:
                _check_media_type(request)
                await strict.parse()
            strict.state.call = Call(context, caller, strict)
            try:
                response = await act(strict)
            except Exception:
                _require_term(context, permission)
                raise
            _require_term(context, permission)
            return response

        return handle


def _require_term(context: Context, permission: Permission) -> None:
    """Law 6: an answer is a promise of this server's term, and so is a refusal: whoever reads that
    its attempt is over stops it. So the last look is after everything that could have waited.
    """
    if permission.role is not None:
        context.writer.leadership.require()


def _permission(method: str, path: str) -> Permission:
    permission = permission_for(method, path)
    if permission is None:
        raise Problem(403, "forbidden", "nobody may call this: it has no permission")
    return permission


async def _authenticate(
    context: Context, request: Request, permission: Permission
) -> Caller | None:
    """The caller, once it is known that its role may call this at all and has budget left."""
    if permission.role is None:
        return None
    try:
        caller = await context.auth.authenticate(request.headers.getlist("authorization"))
    except Problem:
        # Without a token the address pays: trying many must not be cheaper than having one.
        address = request.client.host if request.client else ""
        context.limiter.spend("address:" + address, GUESS_COST, context.monotonic())
        raise
    budget = f"{permission.budget}:{caller.token.id}"
    context.limiter.spend(budget, permission.cost, context.monotonic())
    if not permission.allows(caller.token.role):
        detail = f"this needs the role {permission.role}; the token's is {caller.token.role}"
        raise Problem(403, "forbidden", detail)
    if permission.whole and caller.bound is not None:
        detail = "this shows what everybody does; the token is bound to some subjects"
        raise Problem(403, "forbidden", detail)
    return caller


def _check_not_rolled_back(context: Context, request: Request, caller: Caller) -> None:
    """S25: nothing is changed for a caller that has seen a later index than ours.

    Only that call is refused: whatever a caller says it has seen must not stop the others. Renewals
    pass: they keep what is held, and work must not end because its server was restored.
    """
    given = request.headers.getlist(INDEX_SEEN)
    if not given:
        return
    if len(given) > 1 or not _INDEX.fullmatch(given[0]):
        detail = f"{INDEX_SEEN}: must be one index, as in Cede-Index"
        raise Problem(422, "invalid", detail, field=INDEX_SEEN)
    seen, ours = int(given[0]), context.writer.index
    if seen > ours:
        _log.error("a caller has seen a later index", caller=caller.name, seen=seen, index=ours)
        raise Problem(
            409,
            "rollback_detected",
            f"you have seen index {seen} and this server is at {ours}: its database was replaced "
            "by an older copy, or this is another server; restore the newer copy, or connect anew "
            "to accept the loss",
        )


def _check_query(request: Request, known: set[str], takes_labels: bool) -> None:
    if len(request.scope.get("query_string", b"")) > QUERY_BYTES_MAX:
        detail = f"the query string is longer than {QUERY_BYTES_MAX} bytes"
        raise Problem(422, "invalid", detail, field="query")
    for name in request.query_params:
        if name not in known and not (takes_labels and name.startswith(LABEL_PREFIX)):
            raise Problem(422, "invalid", f"{name[:80]}: unknown parameter", field=name[:80])


def _check_media_type(request: Request) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given and given != "application/json" and not given.endswith("+json"):
        detail = f"the body must be application/json, not {given[:80]}"
        raise Problem(415, "unsupported_media_type", detail, field="Content-Type")

"""The steps around every handler, in this order: authenticate, bound, parse, permission, act.

Every route is of this class, so that no handler can forget a step or change their order.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import structlog
from anyio import CapacityLimiter, to_thread
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from cede.model import bounds
from cede.server.api import strict_json
from cede.server.api.auth import Caller
from cede.server.api.binding import Handler, bound
from cede.server.api.context import CALL_KEY, Call, Context
from cede.server.api.limits import METER, UNITS_PER_SECOND, Meter
from cede.server.api.permissions import LARGE, SMALL, UNREAD, Body, Permission, permission_for
from cede.server.api.problem import Problem
from cede.server.connections import SCOPE_KEY

QUERY_BYTES_MAX = 8_192
# In units of a budget, for callers without a token: a look at the health, and a wrong token.
OPEN_COST = 2
GUESS_COST = 20
LABEL_PREFIX = "label."
# In a route's `openapi_extra`: it takes `label.NAME=VALUE` parameters.
LABEL_FILTERS = "x-label-filters"
INDEX_SEEN = "Cede-Index-Seen"

_INDEX = re.compile(r"[0-9]{1,18}")
_SAFE = ("GET", "HEAD")
_log = structlog.get_logger("cede.api")


class Fields(Headers):
    """The fields of a head, found by name without a walk through all of them."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope=scope)
        self._first = dict(reversed(self.raw))

    def __getitem__(self, name: str) -> str:
        return self._first[name.lower().encode("latin-1")].decode("latin-1")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower().encode("latin-1") in self._first

    def getlist(self, name: str) -> list[str]:
        if name not in self:
            return []
        return [self[name]] if len(self._first) == len(self.raw) else super().getlist(name)


class StrictRequest(Request):
    """A request whose body is bounded and whose JSON means one thing only."""

    bound: Body = SMALL

    @property
    def headers(self) -> Headers:
        if not hasattr(self, "_headers"):
            self._headers: Headers = Fields(self.scope)
        return self._headers

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            declared = self.headers.get("content-length")
            size, values = self.bound
            pieces = self._pieces()
            self._body = await strict_json.read_bounded(pieces, declared, size, values)
        return self._body

    async def _pieces(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            yield message.get("body", b"")
            more = message.get("more_body", False)

    async def parse(self, parsing: CapacityLimiter) -> None:
        """Read the JSON now, so that what is wrong with it is said in our words."""
        body = await self.body()
        if len(body) > bounds.SMALL_BODY_BYTES_MAX:
            # In a thread, so that the loop gets its turn every few milliseconds meanwhile.
            self._json = await to_thread.run_sync(strict_json.parse, body, limiter=parsing)
        elif body:
            self._json = strict_json.parse(body)


class CedeRoute(APIRoute):
    """Every route of the API. Which role it asks for stands in `permissions.py` only."""

    respond: Callable[[Context, StrictRequest], Coroutine[Any, Any, Response]]

    def get_route_handler(self) -> Handler:
        act = bound(self, super().get_route_handler())
        known = {field.alias for field in self.dependant.query_params}
        takes_labels = LABEL_FILTERS in (self.openapi_extra or {})
        takes_body = self.body_field is not None

        async def respond(context: Context, request: StrictRequest) -> Response:
            permission = _permission(request.method, self.path)
            if permission.role is not None:
                # Without its database it could not even look up who is calling.
                context.writer.leadership.require()
            caller = await _authenticate(context, request, permission)
            if caller is None:
                return await answered(context, request, permission, None)
            meter = Meter(urgent=permission.budget != "all")
            METER.set(meter)
            try:
                work = answered(context, request, permission, caller)
                response: Response = await meter.measured(work)
                return response
            finally:
                took = meter.seconds * UNITS_PER_SECOND - permission.cost
                if took > 0:
                    budget = caller.budget(permission.budget)
                    context.limiter.charge(budget, took, context.monotonic())

        async def answered(
            context: Context, request: StrictRequest, permission: Permission, caller: Caller | None
        ) -> Response:
            is_change = request.method not in _SAFE and permission.budget == "all"
            if caller is not None and is_change:
                _check_not_rolled_back(context, request, caller)
            _check_query(request, known, takes_labels)
            request.bound = permission.body
            if takes_body or permission.body is UNREAD:
                _check_media_type(request)
            if takes_body:
                if _may_be_large(request):
                    context.trimmer.soon(asyncio.get_running_loop().call_later)
                await request.parse(context.parsing)
            request.scope[CALL_KEY] = Call(context, caller, request)
            # What the handler answers, or raises, if the term still holds after all that waited.
            try:
                response = await _act_in_turn(act, context, permission, request)
            except Exception:
                _require_term(context, permission)
                raise
            _require_term(context, permission)
            return response

        self.respond = respond
        return _past_the_checks


async def _past_the_checks(request: Request) -> Response:
    """Where FastAPI's own router would go. Calls come by `Dispatch`, and so by every check."""
    raise AssertionError(f"{request.scope['path']} was not dispatched")


async def _act_in_turn(
    act: Handler, context: Context, permission: Permission, request: StrictRequest
) -> Response:
    if not permission.gated:
        return await act(request)
    gate = context.bulk_gate if permission.body is LARGE else context.gate
    await gate.enter()
    try:
        return await act(request)
    finally:
        gate.leave()


def _require_term(context: Context, permission: Permission) -> None:
    """Law 6: an answer is a promise of this server's term, and so is a refusal: whoever reads that
    its attempt is over stops it. So the last look is after everything that could have waited.
    """
    if permission.role is not None:
        context.writer.leadership.require()


def _may_be_large(request: Request) -> bool:
    declared = request.headers.get("content-length", "")
    if not declared.isdecimal():
        return "transfer-encoding" in request.headers
    return int(declared[:20]) > bounds.SMALL_BODY_BYTES_MAX


def _permission(method: str, path: str) -> Permission:
    permission = permission_for(method, path)
    if permission is None:
        raise Problem(403, "forbidden", "nobody may call this: it has no permission")
    return permission


async def _authenticate(
    context: Context, request: Request, permission: Permission
) -> Caller | None:
    """The caller, once it is known that its role may call this at all and has budget left."""
    address = request.client.host if request.client else ""
    if permission.role is None:
        # Apart from wrong tokens: whoever watches the health is not shut out by a neighbour.
        context.limiter.spend("open:" + address, OPEN_COST, context.monotonic())
        return None
    try:
        caller = await context.auth.authenticate(request.headers.getlist("authorization"))
    except Problem:
        # Without a token the address pays: trying many must not be cheaper than having one.
        context.limiter.spend("address:" + address, GUESS_COST, context.monotonic())
        raise
    connection = request.scope.get(SCOPE_KEY)
    if connection is not None:
        connection.known_as(caller.token.id, agent=caller.token.role.machine)
    budget = caller.budget(permission.budget)
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
    given = request.scope["query_string"]
    if not given:
        return
    if len(given) > QUERY_BYTES_MAX:
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

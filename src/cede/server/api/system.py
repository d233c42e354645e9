"""Routes about the server: the token of a call, health, version, metrics."""

from __future__ import annotations

import re
from contextlib import suppress

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cede import __version__
from cede.engine.explain.contents import Contents, contents
from cede.model.settings import Share
from cede.server.api import examples, metrics, openapi
from cede.server.api.context import ThisCall, answer
from cede.server.api.errors import unavailable
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.problem import Problem
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import Anything, HealthOut, VersionOut, WhoamiOut
from cede.server.api.share_metrics import read_shares
from cede.server.leadership import NotLeading
from cede.server.queue import Overloaded, Stopping

router = APIRouter(tags=["system"], route_class=CedeRoute)

_TEXT = {"text/plain": {"schema": {"type": "string"}, "example": 'cede_grants_total{pool="a"} 7'}}


@router.get("/healthz", responses={200: ok(HealthOut, {"status": "ok", "writer": True})})
@router.get("/readyz", responses={200: ok(HealthOut, {"status": "ok", "writer": True})})
async def healthz(call: ThisCall) -> Response:
    """Whether this server takes commands and grants. Needs no token and tells nothing else."""
    writer = call.context.writer
    if not writer.alive:
        raise unavailable("not_writing", "this server takes no commands")
    writer.leadership.require()
    if (problem := writer.unwritable) is not None:
        raise problem
    if trouble := writer.trouble:
        broken = sorted({_what_is_broken(each) for each in trouble})
        raise unavailable(
            "unsound",
            f"the state is unsound ({', '.join(broken)}): what runs goes on and nothing is granted "
            "until it adds up again; the server's log has the details",
            60,
        )
    return answer({"status": "ok", "writer": True})


def _what_is_broken(problem: str) -> str:
    """Return the invariant's id only: a caller without a token may learn no names (C4)."""
    found = re.match(r"[A-Z][0-9]+\b", problem)
    return found[0] if found else "the pass failed"


@router.get(
    "/version",
    responses={200: ok(VersionOut, {"name": "cede", "version": __version__, "api": "v1"})},
)
async def version() -> Response:
    """The version of the server. Needs no token."""
    return answer({"name": "cede", "version": __version__, "api": "v1"})


@router.get(f"{API}/whoami", responses={200: ok(WhoamiOut, examples.WHOAMI)})
async def whoami(call: ThisCall) -> Response:
    """The name, role and subjects of the token of this call."""
    token = call.caller.token
    return answer(
        {
            "id": token.id,
            "name": token.name,
            "role": str(token.role),
            "subjects": [str(subject) for subject in token.subjects],
            "expires_at": token.expires_at_wall,
        }
    )


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"description": "Prometheus text", "content": _TEXT}},
)
async def get_metrics(call: ThisCall) -> Response:
    """Numbers for Prometheus. They name every policy, so a token bound to subjects may not read
    them."""
    pools: list[Contents] = []
    shares = b"[]"
    # The other series are answered all the same.
    with suppress(Problem, NotLeading, Overloaded, Stopping):
        pools = await call.context.query(lambda state, now: contents(state))
        if any(each.pool.settings.share is Share.FAIR_SHARE for each in pools):
            shares = await call.costly("share metrics", (), read_shares)
    content = await run_in_threadpool(call.context.metrics.render, pools, shares)
    return Response(content, headers={"Content-Type": metrics.CONTENT_TYPE})


@router.get(f"{API}/openapi.json", responses={200: ok(Anything, {"openapi": "3.1.0"})})
async def get_openapi(request: Request) -> Response:
    """This document."""
    return answer(openapi.document(request.app))

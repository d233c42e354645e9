"""Links that open the page without a token in them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field, StringConstraints
from starlette.responses import Response

from cede.model.bounds import LINK_LIFE, MINUTE
from cede.model.durations import seconds
from cede.server.api.auth import bearer
from cede.server.api.bodies import Body, example
from cede.server.api.context import ThisCall, answer
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.problem import Problem
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import Out

router = APIRouter(prefix=API, tags=["page"], route_class=CedeRoute)

_CODE = "nq0C3rX0bRZt1m3Jc0a7cVwHk2Zp9QxE"


class LinkOut(Out):
    code: str = Field(description="What stands after `#link=` of the page's address.")
    seconds: float = Field(description="How long it is worth something, unless it is used before.")


class LinkIn(Body):
    """A code that was made by `POST /links`."""

    model_config = example(code=_CODE)

    code: Annotated[str, StringConstraints(min_length=1, max_length=100)]


class OpenedOut(Out):
    token: str = Field(description="The token with which the link was made.")


@router.post(
    "/links", status_code=201, responses={201: ok(LinkOut, {"code": _CODE, "seconds": 300}, "Made")}
)
async def make_link(call: ThisCall) -> Response:
    """Make a code that opens the page with this token, once and within minutes."""
    secret = bearer(call.request.headers.get("authorization", ""))
    assert secret is not None, "the call was let in by it"
    made = call.context.links.make(secret)
    return answer({"code": made, "seconds": seconds(LINK_LIFE)}, 201)


@router.post("/links/open", responses={200: ok(OpenedOut, {"token": "cede_…"})})
async def open_link(body: LinkIn, call: ThisCall) -> Response:
    """Exchange a code for the token that it stands for."""
    token = call.context.links.take(body.code)
    if token is None:
        life = f"{LINK_LIFE // MINUTE} minutes"
        detail = f"this link was used before, or is older than {life}: cede page makes a new one"
        raise Problem(404, "no_such_link", detail, field="code")
    return answer({"token": token})

"""Routes of tokens: made, listed and revoked by admins. The secret is in one answer and nowhere
else (C3)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from cede.model.errors import Conflict, Invalid
from cede.model.subject import Subject, parse_name
from cede.model.token import Role, Token
from cede.server import clock, tokens
from cede.server.api import examples
from cede.server.api.bodies import TokenIn
from cede.server.api.context import ThisCall, answer, nothing
from cede.server.api.json_type import Json
from cede.server.api.lists import REFERENCE, Cursor, Limit
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import NewTokenOut, TokenOut, TokenPage
from cede.server.api.views import token_out
from cede.server.ids import new_id
from cede.server.writer import Tx

router = APIRouter(prefix=API, tags=["tokens"], route_class=CedeRoute)

TokenRef = Annotated[str, Path(**REFERENCE, description="Its id, or the start of it.")]


@router.get("/tokens", responses={200: ok(TokenPage, examples.page(examples.TOKEN))})
async def list_tokens(call: ThisCall, limit: Limit, cursor: Cursor = None) -> Response:
    """Every token, revoked ones too; never a secret."""
    store = call.context.store
    page = await call.context.read(store.list_tokens, cursor=cursor, limit=limit)
    return answer({"items": [token_out(token) for token in page.items], "next": page.next})


@router.get("/tokens/{id}", responses={200: ok(TokenOut, examples.TOKEN)})
async def get_token(id: TokenRef, call: ThisCall) -> Response:
    """One token."""
    return answer(token_out(await call.context.read(call.context.store.get_token, id)))


@router.post(
    "/tokens", status_code=201, responses={201: ok(NewTokenOut, examples.NEW_TOKEN, "Created")}
)
async def create_token(body: TokenIn, call: ThisCall) -> Response:
    """Make a token. Only this answer holds its secret.

    A submitter, and a viewer that has subjects, is confined to them. For the other roles the first
    subject is only the default of requests that name none.
    """
    role = Role.parse(body.role)
    name = parse_name(body.name, "name")
    subjects = _subjects(body, role)
    secret, digest = tokens.new_token()
    token_id = new_id()
    expires = None
    if body.expires_in is not None:
        expires = clock.wall(timedelta(seconds=body.expires_in))
    actor = call.caller.identity

    def command(tx: Tx) -> Json:
        token = Token(token_id, name, role, subjects, digest, tx.wall, expires, uses=body.uses)
        tx.put_token(token)
        detail = {"name": name, "role": str(role), "subjects": list(body.subjects)}
        tx.audit(actor, "token.create", token_id, detail)
        return token_out(token)

    # The answer remembered under an idempotency key has no secret in it, so a repetition gets none.
    made = await call.context.execute(command, idempotency=await call.idempotency())
    if made["id"] != token_id:
        raise Conflict(
            "already_created",
            f"token {made['id']} was made under this key; its secret was shown then, once",
        )
    call.context.auth.forget()
    return answer(made | {"token": secret}, 201)


@router.delete("/tokens/{id}", status_code=204, responses={204: {"description": "Revoked"}})
async def revoke_token(id: TokenRef, call: ThisCall) -> Response:
    """Revoke a token: within a second it is of no use on every server."""
    store = call.context.store
    token = await call.context.read(store.get_token, id)
    actor = call.caller.identity

    def command(tx: Tx) -> None:
        tx.put_token(replace(tx.token(token.id, store), revoked=True))
        tx.audit(actor, "token.revoke", token.id, {"name": token.name})

    await call.context.execute(command)
    call.context.auth.forget()
    return nothing()


def _subjects(body: TokenIn, role: Role) -> tuple[Subject, ...]:
    try:
        subjects = tuple(dict.fromkeys(Subject.parse(each) for each in body.subjects))
    except Invalid as error:
        raise Invalid("subjects", error.problem) from None
    if role is Role.SUBMITTER and not subjects:
        raise Invalid("subjects", "a submitter is bound to at least one, such as team:red")
    if role is Role.JOIN and subjects:
        raise Invalid("subjects", "a join token has none: it speaks for no team")
    if role is not Role.JOIN and body.uses is not None:
        raise Invalid("uses", "only a join token is used up")
    return subjects

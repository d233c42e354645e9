"""Routes of the configuration as a whole: reading it, and making it as it is declared."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from cede.engine.admin.apply import apply
from cede.engine.state.state import State
from cede.model import bounds
from cede.model.configuration import Change, Configuration
from cede.server.api import examples
from cede.server.api.bodies import Body, example
from cede.server.api.context import ThisCall, answer
from cede.server.api.dry_run import DryRun
from cede.server.api.json_type import Json
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import AppliedOut, ConfigurationOut
from cede.server.ids import new_id
from cede.server.writer import Tx
from cede.sim.preview import preview
from cede.snapshot.configuration import read_configuration, show_configuration

router = APIRouter(prefix=API, tags=["configuration"], route_class=CedeRoute)

Prune = Annotated[
    bool,
    Query(description="Delete what is there and not declared, of the kinds that the body names."),
]
# Entries are checked by the reader of files, which names the place of an error.
_Entries = Annotated[list[Any], Field(max_length=bounds.DECLARED_MAX)]


class ConfigurationIn(Body):
    """Pools, policies and tenants as they shall be; a field that is absent has its default."""

    model_config = example(**examples.CONFIGURATION)

    pools: _Entries | None = None
    policies: _Entries | None = None
    tenants: _Entries | None = None


@router.get("/configuration", responses={200: ok(ConfigurationOut, examples.CONFIGURATION)})
async def get_configuration(call: ThisCall) -> Response:
    """Every pool, policy and tenant, as `POST` of the same path takes them."""

    def read(state: State, now: int) -> bytes:
        text: bytes = orjson.dumps(show_configuration(state))
        return text

    found = await call.costly("configuration", (), read)
    return Response(found, media_type="application/json")


@router.post("/configuration", responses={200: ok(AppliedOut, examples.APPLIED)})
async def apply_configuration(
    body: ConfigurationIn, call: ThisCall, prune: Prune = False, dry_run: DryRun = False
) -> Response:
    """Make pools, policies and tenants as they are declared, all of it or nothing, in any order.
    What is not declared stays, unless it is pruned.
    """
    wanted = read_configuration(body.model_dump(exclude_none=True))
    if dry_run:
        return await _tried(call, wanted, prune)
    actor = call.caller.identity

    def command(tx: Tx) -> Json:
        made = apply(tx.state, wanted, prune=prune, new_id=new_id, created=tx.wall)
        for each in made:
            action = f"{each.kind}.{_ACTIONS.get((each.do, each.kind), each.do)}"
            tx.audit(actor, action, each.id, _detail(each))
        return {"changes": [_change_out(each) for each in made]}

    weight = 1 + sum(len(each or ()) for each in (body.pools, body.policies, body.tenants))
    idempotency = await call.idempotency()
    return answer(await call.context.execute(command, idempotency=idempotency, weight=weight))


async def _tried(call: ThisCall, wanted: Configuration, prune: bool) -> Response:
    made: list[Change] = []

    def edit(state: State) -> None:
        made[:] = apply(state, wanted, prune=prune, new_id=new_id)

    def read(state: State, now: int) -> bytes:
        found = preview(state, now, partial(edit, state))
        text: bytes = orjson.dumps({"changes": [_change_out(each) for each in made], **found})
        return text

    asked = (call.request.url.path, call.request.url.query, await call.request.body())
    return Response(await call.costly("dry_run", asked, read), media_type="application/json")


# The audit's name of a single edit, where it is another word.
_ACTIONS = {("create", "policy"): "attach", ("delete", "policy"): "detach"}


def _detail(change: Change) -> Json:
    """Return the audit's detail of a change: its object, and the new value of each field."""
    about = (
        {"name": change.name}
        if change.pool is None
        else {
            "pool": change.pool,
            "subject": change.name,
        }
    )
    return about | {name: became for name, (_, became) in (change.fields or {}).items()}


def _change_out(change: Change) -> Json:
    return {
        "do": change.do,
        "kind": change.kind,
        "name": change.name,
        "pool": change.pool,
        "fields": {
            name: {"from": was, "to": became}
            for name, (was, became) in (change.fields or {}).items()
        },
    }

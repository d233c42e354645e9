"""Policies: a subject's place in a pool."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from cede.engine.admin import edits
from cede.engine.state.state import State
from cede.model.errors import NotFound
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.subject import Subject
from cede.server.api import examples
from cede.server.api.bodies import ComponentType, PolicyIn, PolicyPatch
from cede.server.api.context import Call, ThisCall, answer, nothing
from cede.server.api.dry_run import DryRun, tried
from cede.server.api.json_type import Json
from cede.server.api.lists import REFERENCE, Component, Cursor, Limit, PoolFilter
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.resolve import policy_in, pool_in, started_by
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import DryRunOut, PolicyOut, PolicyPage
from cede.server.api.views import policy_out
from cede.server.ids import new_id
from cede.server.writer import Tx
from cede.store import PolicyView

router = APIRouter(prefix=API, tags=["policies"], route_class=CedeRoute)

PolicyRef = Annotated[str, Path(**REFERENCE, description="Its id, or the start of it.")]


@router.get("/policies", responses={200: ok(PolicyPage, examples.page(examples.POLICY))})
async def list_policies(
    call: ThisCall,
    limit: Limit,
    pool: PoolFilter = None,
    component: Component = None,
    component_type: ComponentType | None = None,
    cursor: Cursor = None,
) -> Response:
    """Policies that the token may see, in the order in which they were attached."""
    context, subjects = call.context, call.caller.bound

    async def found() -> Json:
        pool_id = None
        if pool is not None:
            pool_id = (await context.read(context.store.get_pool, pool)).id
        page = await context.read(
            context.store.list_policies,
            pool_id=pool_id,
            component=component,
            component_type=component_type,
            subjects=subjects,
            cursor=cursor,
            limit=limit,
        )
        return {"items": [policy_out(view) for view in page.items], "next": page.next}

    return await call.shared(found)


@router.post(
    "/policies",
    status_code=201,
    responses={
        201: ok(PolicyOut, examples.POLICY, "Attached"),
        200: ok(DryRunOut, examples.DRY_RUN, "What it would do"),
    },
)
async def attach_policy(body: PolicyIn, call: ThisCall, dry_run: DryRun = False) -> Response:
    """Give a subject its place in a pool."""
    actor = call.caller.identity
    subject = Subject.of(body.component, body.component_type)

    def attach(state: State, created: str) -> tuple[Pool, Policy]:
        pool = pool_in(state, body.pool)
        return pool, edits.attach_policy(
            state,
            id=new_id(),
            pool_id=pool.id,
            subject=subject,
            name=body.name,
            parent=body.parent,
            created=created,
            **body.said(),
        )

    if dry_run:
        return await tried(call, lambda state, _: attach(state, ""))

    def command(tx: Tx) -> Json:
        pool, policy = attach(tx.state, tx.wall)
        tx.audit(actor, "policy.attach", policy.id, body.model_dump(exclude_defaults=True))
        return policy_out(PolicyView(policy, pool.name, {}))

    made = await call.context.execute(command, idempotency=await call.idempotency())
    return answer(made, 201)


@router.get("/policies/{policy}", responses={200: ok(PolicyOut, examples.POLICY)})
async def get_policy(policy: PolicyRef, call: ThisCall) -> Response:
    """One policy, by id or the start of it."""
    return answer(policy_out(await _visible(call, policy)))


@router.patch("/policies/{policy}", responses={200: ok(PolicyOut | DryRunOut, examples.POLICY)})
async def update_policy(
    policy: PolicyRef, body: PolicyPatch, call: ThisCall, dry_run: DryRun = False
) -> Response:
    """Change the given fields; a map that is given replaces the old one. Waiters that ask for
    more than the policy then allows are paused.
    """
    actor = call.caller.identity

    def edit(state: State, now: int) -> str:
        found = policy_in(state, policy)
        edits.update_policy(state, found.id, **body.said())
        return found.id

    def command(tx: Tx) -> str:
        policy_id = edit(tx.state, tx.now)
        tx.audit(actor, "policy.update", policy_id, body.model_dump(exclude_none=True))
        return policy_id

    if dry_run:
        return await tried(call, edit)
    policy_id = await call.context.execute(command)
    return answer(policy_out(await _visible(call, policy_id)))


@router.delete("/policies/{policy}", status_code=204, responses={204: {"description": "Gone"}})
async def detach_policy(policy: PolicyRef, call: ThisCall) -> Response:
    """Remove a subject's place in a pool; what it holds there must have ended."""
    actor = call.caller.identity

    def command(tx: Tx) -> None:
        found = policy_in(tx.state, policy)
        edits.detach_policy(tx.state, found.id)
        detail = {"pool_id": found.pool_id, "subject": str(found.subject)}
        tx.audit(actor, "policy.detach", found.id, detail)

    await call.context.execute(command)
    return nothing()


async def _visible(call: Call, ref: str) -> PolicyView:
    """Return a policy that the caller may see: a bound token finds its own policies only, and an
    ambiguous start must not name foreign ones."""
    store = call.context.store
    bound = call.caller.bound
    if bound is None:
        return await call.context.read(store.get_policy, ref)
    mine = await call.context.read(store.list_policies, subjects=bound, limit=500)
    known = {view.policy.id: view for view in mine.items}
    found = [ref] if ref in known else started_by(known, ref)
    if len(found) != 1:
        raise NotFound("policy", ref)
    return known[found[0]]

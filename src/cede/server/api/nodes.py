"""Routes of nodes: listing them, showing what is on them, and taking them out of service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from cede.engine.admin import claims, fleet
from cede.engine.state.state import State
from cede.model.errors import Conflict, NotFound, Refused
from cede.model.node import Node
from cede.model.reason import Code, Reason
from cede.model.subject import Subject
from cede.model.token import name_in, node_subject
from cede.server.api import examples, redact
from cede.server.api.auth import Caller
from cede.server.api.bodies import ClaimIn, NodeOutIn, UnclaimIn
from cede.server.api.context import Call, ThisCall, answer, nothing
from cede.server.api.dry_run import DryRun, tried
from cede.server.api.joining import revoke_tokens
from cede.server.api.json_type import Json
from cede.server.api.lists import REFERENCE, Cursor, Limit, PoolFilter
from cede.server.api.node_views import node_out
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.problem import Problem
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import ClaimOut, DryRunOut, NodeOut, NodePage
from cede.server.writer import Tx

router = APIRouter(prefix=API, tags=["nodes"], route_class=CedeRoute)

NodeRef = Annotated[str, Path(**REFERENCE, description="Its name, its id, or the start of its id.")]
_ONE: dict[int | str, dict[str, Any]] = {200: ok(NodeOut, examples.NODE)}


@router.get("/nodes", responses={200: ok(NodePage, examples.page(examples.NODE))})
async def list_nodes(
    call: ThisCall, limit: Limit, pool: PoolFilter = None, cursor: Cursor = None
) -> Response:
    """Nodes by name, with what is held on them."""
    context = call.context
    pool_id = None
    if pool is not None:
        pool_id = (await context.read(context.store.get_pool, pool)).id
    page = await context.read(context.store.list_nodes, pool_id=pool_id, cursor=cursor, limit=limit)
    shown = await _show(call, [node.id for node in page.items])
    return answer({"items": shown, "next": page.next})


@router.get("/nodes/{node}", responses=_ONE)
async def get_node(node: NodeRef, call: ThisCall) -> Response:
    """One node, by name, id or the start of its id."""
    return answer(await _one(call, await _find(call, node)))


@router.post("/nodes/{node}/drain", responses=_ONE)
async def drain(node: NodeRef, call: ThisCall, body: NodeOutIn | None = None) -> Response:
    """Give the node no more work; what runs there ends by itself."""
    reason = "" if body is None else body.reason
    return await _act(
        call, node, "drain", lambda tx, id_: fleet.drain(tx.state, id_, tx.now, reason)
    )


@router.post("/nodes/{node}/undrain", responses=_ONE)
async def undrain(node: NodeRef, call: ThisCall) -> Response:
    """Give a drained node work again."""
    return await _act(call, node, "undrain", lambda tx, id_: fleet.undrain(tx.state, id_, tx.now))


@router.post("/nodes/{node}/disable", responses=_ONE)
async def disable(node: NodeRef, call: ThisCall, body: NodeOutIn | None = None) -> Response:
    """Take a node out of service at once: what runs there is stopped and waits again."""
    reason = "" if body is None else body.reason
    return await _act(
        call, node, "disable", lambda tx, id_: fleet.disable(tx.state, id_, tx.now, reason)
    )


@router.post("/nodes/{node}/enable", responses=_ONE)
async def enable(node: NodeRef, call: ThisCall) -> Response:
    """Bring a node back into service."""
    return await _act(call, node, "enable", lambda tx, id_: fleet.enable(tx.state, id_, tx.now))


@router.post("/nodes/claim", responses={200: ok(ClaimOut, examples.CLAIM)})
async def claim(body: ClaimIn, call: ThisCall) -> Response:
    """Keep nodes for one user's sensitive work, all of them or none, now or not at all.

    Work of others there is asked to save itself and is stopped. Operators may claim for any user;
    other callers for themselves, in pools where a policy of theirs has `allow_sensitive`.
    """
    caller = call.caller
    claimant = caller.identity if body.for_ is None else await _identity(call, body.for_)
    if claimant != caller.identity and caller.bound is not None:
        detail = f"for: only an operator may claim for somebody else; this token is {caller.name}"
        raise Problem(403, "forbidden", detail, field="for")
    found = [await _find(call, each) for each in body.nodes]

    def command(tx: Tx) -> Json:
        _check_allowed(tx.state, caller, found)
        with _unnamed(tx.state, caller, found):
            done = claims.claim(tx.state, [each.id for each in found], claimant, tx.now)
        for node in done.nodes:
            tx.audit(caller.identity, "node.claim", node.id, {"name": node.name, "for": claimant})
        return {"for": name_in(claimant), "stopping": len(done.victims)}

    made = await call.context.execute(command, idempotency=await call.idempotency())
    return answer({"nodes": await _show(call, [each.id for each in found]), **made})


@router.post("/nodes/unclaim", responses={200: ok(ClaimOut, examples.UNCLAIM)})
async def unclaim(body: UnclaimIn, call: ThisCall) -> Response:
    """End claims of nodes. Operators may end any claim, other callers their own."""
    caller = call.caller
    found = [await _find(call, each) for each in body.nodes]
    by = None if caller.bound is None else caller.identity

    def command(tx: Tx) -> Json:
        with _unnamed(tx.state, caller, found):
            done = claims.unclaim(tx.state, [each.id for each in found], tx.now, by)
        for node in done.nodes:
            tx.audit(caller.identity, "node.unclaim", node.id, {"name": node.name})
        return {"for": None, "stopping": 0}

    made = await call.context.execute(command, idempotency=await call.idempotency())
    return answer({"nodes": await _show(call, [each.id for each in found]), **made})


def _check_allowed(state: State, caller: Caller, nodes: list[Node]) -> None:
    """Refuse a caller that may run no sensitive work in a pool: it has nothing to claim nodes
    for."""
    if caller.bound is None:
        return
    for pool_id in dict.fromkeys(each.pool_id for each in nodes):
        pool = "no pool" if pool_id is None else state.pools[pool_id].name
        mine = [
            policy
            for subject in caller.bound
            for policy in state.policies_of(subject)
            if policy.pool_id == pool_id
        ]
        if any(policy.allow_sensitive for policy in mine):
            continue
        detail = {"pool": pool, "what": "what a node is claimed for"}
        policy = mine[0].name if mine else caller.name
        raise Refused(Reason(Code.SENSITIVE_NOT_ALLOWED, {"policy": policy, **detail}))


@contextmanager
def _unnamed(state: State, caller: Caller, nodes: list[Node]) -> Iterator[None]:
    """Remove the names of others on a node from a refusal to a tenant (C4)."""
    try:
        yield
    except Conflict as error:
        if caller.bound is None:
            raise
        problem = redact.seen_by(caller, state, error.problem)
        for node in (state.nodes[each.id] for each in nodes if each.id in state.nodes):
            if node.claimed_by:
                problem = problem.replace(
                    f" {node.claimed_by}", f" {redact.claimant(node.claimed_by, caller)}"
                )
        raise Conflict(error.code, problem) from None


async def _identity(call: Call, name: str) -> str:
    """Return the identity that an operator names: by a name that one identity has, or
    SUBJECT/NAME where several do."""
    caller = call.caller
    if name in (caller.name, caller.identity):
        return caller.identity
    if caller.bound is not None:
        return name
    context = call.context
    named = await context.read(context.store.tokens_named, name_in(name))
    known = {each.identity for each in named if not each.revoked}
    if name in known or not known:
        return name
    if len(known) > 1 or "/" in name:
        which = ", ".join(sorted(known)[:5])
        raise Conflict("ambiguous", f"for: {name!r} may be {which}; say which")
    return known.pop()


Force = Annotated[bool, Query(description="Nothing runs there any more: I vouch for it.")]


@router.delete(
    "/nodes/{node}",
    status_code=204,
    responses={
        204: {"description": "Gone"},
        200: ok(DryRunOut, examples.DRY_RUN, "What it would do"),
    },
)
async def delete_node(
    node: NodeRef, call: ThisCall, force: Force = False, dry_run: DryRun = False
) -> Response:
    """Forget a node that holds nothing; its token is revoked.

    With `force` also one that is down and still holds work, which is then given back.
    """
    context, actor = call.context, call.caller.identity
    found = await _find(call, node)
    if dry_run:
        return await tried(call, lambda state, now: fleet.delete(state, found.id, now, force=force))

    def command(tx: Tx) -> None:
        gone = fleet.delete(tx.state, found.id, tx.now, force=force)
        revoke_tokens(tx, context.store, node_subject(gone.id))
        tx.audit(actor, "node.delete", gone.id, {"name": gone.name, "force": force})

    await context.execute(command)
    context.auth.forget()
    return nothing()


async def _act(call: Call, ref: str, what: str, act: Callable[[Tx, str], Node]) -> Response:
    found = await _find(call, ref)
    actor = call.caller.identity

    def command(tx: Tx) -> Json:
        node = act(tx, found.id)
        tx.audit(actor, f"node.{what}", node.id, {"name": node.name, "reason": node.reason})
        return {"id": node.id}

    await call.context.execute(command, idempotency=await call.idempotency())
    return answer(await _one(call, found))


async def _find(call: Call, ref: str) -> Node:
    return await call.context.read(call.context.store.get_node, ref)


async def _one(call: Call, node: Node) -> Json:
    shown = await _show(call, [node.id])
    if not shown:
        raise NotFound("node", node.name)
    return shown[0]


async def _show(call: Call, ids: list[str]) -> list[Json]:
    """Return nodes as of the latest commit; work of others is counted and not named (C4)."""
    context, caller = call.context, call.caller
    order_board = context.writer.order_board

    def read(state: State, now: int) -> list[Json]:
        nodes = [state.nodes[each] for each in ids if each in state.nodes]
        return [node_out(state, node, order_board.heard_at(node.id), now) for node in nodes]

    shown = await context.query(read)
    for each in shown:
        if each["claimed_by"] is not None:
            each["claimed_by"] = redact.claimant(each["claimed_by"], caller)
    if caller.bound is not None:
        for each in shown:
            each["allocations"] = [
                on_it
                for on_it in each["allocations"]
                if caller.sees(Subject(*on_it["subject"].split(":", 1)))
            ]
    return shown

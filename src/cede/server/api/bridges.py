"""The route by which a bridge registers its nodes: all of them, each time."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter
from starlette.responses import Response

from cede.engine.admin import fleet
from cede.model import bounds
from cede.model.node import Node
from cede.model.token import Role, bridge_subject
from cede.server import tokens
from cede.server.api import examples
from cede.server.api.agent_bodies import BridgedNodeIn, BridgeIn
from cede.server.api.context import Context, ThisCall, answer
from cede.server.api.joining import hand_over, spendable
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.problem import Problem
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import BridgeOut
from cede.server.ids import new_id
from cede.server.writer import Tx

router = APIRouter(prefix=API, tags=["agent"], route_class=CedeRoute)

GONE = "its cluster has no such node any more; delete it: cede node delete"


@router.post("/bridge/register", responses={200: ok(BridgeOut, examples.BRIDGE)})
async def register_bridge(body: BridgeIn, call: ThisCall) -> Response:
    """Make the nodes of a cluster nodes here, or report again what they have. A join token is
    answered with the bridge's own token."""
    context, caller = call.context, call.caller
    joins = caller.token.role is Role.JOIN
    if not joins and caller.bridge != body.name:
        whose = f"bridge {caller.bridge}" if caller.bridge else "a node"
        raise Problem(403, "forbidden", f"this token is of {whose}", field="name")
    mine = bridge_subject(body.name)
    secret, digest = tokens.new_token()

    def command(tx: Tx) -> list[Node]:
        join = None
        if joins:
            join = spendable(tx, context.store, caller.token, lambda token: mine in token.subjects)
        before = {each.name for each in _nodes_of(tx, body.name)}
        found = [_register(tx, context, body, each, own=not joins) for each in body.nodes]
        _note_gone(tx, body)
        if join is not None:
            hand_over(tx, context.store, join, mine, f"bridge {body.name}", digest)
        if join is not None or before != {each.name for each in found}:
            detail = {"name": body.name, "nodes": len(found)}
            tx.audit(caller.identity, "bridge.register", body.name, detail)
        return found

    nodes = await context.execute(command)
    context.auth.forget()
    for node in nodes:
        context.writer.order_board.beat(node.id, context.writer.now())
    first = nodes[0]
    made = {
        "bridge": body.name,
        "nodes": len(nodes),
        "epoch": context.store.epoch,
        "heartbeat": first.heartbeat / bounds.SECOND,
    }
    return answer(made | ({"token": secret} if joins else {}))


def _register(tx: Tx, context: Context, body: BridgeIn, given: BridgedNodeIn, *, own: bool) -> Node:
    before = tx.state.nodes.named(given.name)
    node = fleet.register(
        tx.state,
        id=new_id(),
        name=given.name,
        amounts=given.amounts,
        labels=given.labels,
        group=given.group,
        boot=body.boot,
        heartbeat=context.config.heartbeat,
        folder=body.folder,
        protocol=body.protocol,
        session=body.session,
        machine=body.machine,
        bridge=body.name,
        created=tx.wall,
        now=tx.now,
        caller=fleet.Caller(own, body.previous, before is not None),
    )
    fleet.heard(tx.state, node.id, tx.now)
    fleet.others_hold(tx.state, node.id, given.others, given.why, tx.now)
    return tx.state.nodes[node.id]


def _nodes_of(tx: Tx, bridge: str) -> list[Node]:
    return [each for each in tx.state.nodes.values() if each.bridge == bridge]


def _note_gone(tx: Tx, body: BridgeIn) -> None:
    """Let a node that its cluster no longer has take no work; an operator deletes it."""
    named = {each.name for each in body.nodes}
    for node in _nodes_of(tx, body.name):
        if node.name not in named:
            tx.state.put(replace(node, session=body.session, boot=body.boot))
            fleet.others_hold(tx.state, node.id, dict(node.amounts), GONE, tx.now)

"""What agents call: register once, then one heartbeat after the other.

An answer is the whole list of what a node should have, so that nothing is lost with an answer that
is lost. A heartbeat that brings nothing and finds nothing new is held until something is, and costs
neither the writer nor the database anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

import orjson
import structlog
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from cede.agent import detect
from cede.engine.admin import fleet, quarantine
from cede.engine.lifecycle import reports
from cede.model import bounds
from cede.model.durations import parse_duration, seconds
from cede.model.errors import CedeError, Conflict
from cede.model.node import Node, NodeState, Out
from cede.model.token import Role, Token, node_subject
from cede.server import tokens
from cede.server.api import examples
from cede.server.api.agent_bodies import HeartbeatIn, RegisterIn, ReportIn
from cede.server.api.context import Context, ThisCall, answer
from cede.server.api.errors import Problem
from cede.server.api.json_type import Json
from cede.server.api.node_views import checkpoints_of, orders_text
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import HeartbeatOut, RegisteredOut
from cede.server.ids import new_id
from cede.server.order_board import Posted
from cede.server.writer import Tx
from cede.store import Damaged, DiskFull, Store

router = APIRouter(prefix=API, tags=["agent"], route_class=CedeRoute)

_log = structlog.get_logger("cede.agents")

_PAUSE_UNWRITABLE = 1.0


@router.post("/agent/register", responses={200: ok(RegisteredOut, examples.REGISTERED)})
async def register(body: RegisterIn, call: ThisCall) -> Response:
    """Make this machine a node, or say again what it has. Who joins gets the node's own token."""
    context, caller = call.context, call.caller
    joins = caller.token.role is Role.JOIN
    if not joins:
        mine = _posted(context, caller.node_id).node
        if mine.name != body.name:
            raise Problem(403, "forbidden", f"this token is of node {mine.name}", field="name")
    secret, digest = tokens.new_token()

    def command(tx: Tx) -> Node:
        join = _spendable(tx, context.store, caller.token, body) if joins else None
        before = _named(tx, body.name)
        node = fleet.register(
            tx.state,
            id=new_id(),
            name=body.name,
            amounts=body.amounts,
            devices=body.devices,
            labels=body.labels,
            group=body.group,
            fingerprint=body.fingerprint,
            boot=body.boot,
            heartbeat=context.config.heartbeat,
            folder=body.folder,
            protocol=body.protocol,
            beside_server=context.store.sqlite and body.boot == detect.boot_id(),
            session=body.session,
            machine=body.machine,
            created=tx.wall,
            now=tx.now,
            caller=fleet.Caller(not joins, body.previous, _has_agent(tx, context.store, before)),
        )
        fleet.heard(tx.state, node.id, tx.now)
        if join is not None:
            _hand_over(tx, context.store, join, node, digest)
        if join is not None or before != node:
            detail = {"name": node.name, "amounts": dict(node.amounts), "boot": node.boot}
            tx.audit(caller.identity, "node.register", node.id, detail)
        return node

    try:
        node, notes = await context.execute(lambda tx: _noted(tx, command(tx)))
    except Conflict as error:
        if error.code == fleet.SECOND_AGENT:
            await _note_refusal(context, body, error.problem)
        raise
    context.auth.forget()
    context.writer.order_board.beat(node.id, context.writer.now())
    made = {"node": node.id, "epoch": context.store.epoch, "notes": notes} | _periods(node)
    return answer(made | ({"token": secret} if joins else {}))


def _has_agent(tx: Tx, store: Store, node: Node | None) -> bool:
    """Whether an agent has spoken for a node; the first start of a server makes one without."""
    return node is not None and bool(node.session or _tokens_of(tx, store, node))


async def _note_refusal(context: Context, body: RegisterIn, why: str) -> None:
    """Once for each agent that tries, however often it does."""
    if context.refused.get(body.name) != body.session:
        context.refused[body.name] = body.session
        await context.execute(lambda tx: fleet.refused(tx.state, body.name, why, tx.now))


def _noted(tx: Tx, node: Node) -> tuple[Node, list[str]]:
    """A node, and what its operator should know."""
    if node.pool_id is None or checkpoints_of(tx.state, node) != "own":
        return node, []
    pool = tx.state.pools[node.pool_id].name
    return node, [
        f"its checkpoint folder is not that of all nodes of pool {pool}: work that saved itself "
        "here waits for this node, or starts anew elsewhere; share one folder with --checkpoints"
    ]


def _named(tx: Tx, name: str) -> Node | None:
    return tx.state.nodes.named(name)


def _spendable(tx: Tx, store: Store, token: Token, body: RegisterIn) -> Token:
    """The join token as it is now, if it may make one more node, or made this one on this boot.

    The answer that carried a node's token may have been lost; then the machine asks once more.
    """
    token = tx.token(token.id, store)
    if token.revoked:
        raise Conflict("join_token_used", "this join token was revoked; ask for another")
    if token.uses == 0 and not _made(token, _named(tx, body.name), body.boot):
        raise Conflict("join_token_used", "this join token is used up; ask for another")
    return token


def _made(token: Token, node: Node | None, boot: str) -> bool:
    return node is not None and node.boot == boot and node_subject(node.id) in token.subjects


def _hand_over(tx: Tx, store: Store, join: Token, node: Node, digest: str) -> None:
    """C8: one node, one token. Whoever spoke for this node before does so no longer."""
    mine = node_subject(node.id)
    if join.uses is not None and mine not in join.subjects:
        tx.put_token(replace(join, uses=join.uses - 1, subjects=(*join.subjects, mine)))
    revoke_tokens(tx, store, node)
    name = f"node {node.name}"[: bounds.NAME_LENGTH_MAX]
    tx.put_token(Token(new_id(), name, Role.NODE, (mine,), digest, tx.wall))


def revoke_tokens(tx: Tx, store: Store, node: Node) -> None:
    for token in _tokens_of(tx, store, node):
        tx.put_token(replace(token, revoked=True))


def _tokens_of(tx: Tx, store: Store, node: Node) -> list[Token]:
    """The tokens that speak for a node, as this transaction has them."""
    of_node = {each.id: each for each in (*store.tokens_of_node(node.id), *tx.tokens)}
    mine = (node_subject(node.id),)
    return [each for each in of_node.values() if each.role is Role.NODE and each.subjects == mine]


@router.post("/agent/heartbeat", responses={200: ok(HeartbeatOut, examples.HEARTBEAT)})
async def heartbeat(body: HeartbeatIn, call: ThisCall) -> Response:
    """A sign of life. Reports are acknowledged once they are committed, also those that come too
    late to change anything. With `wait` the answer may take that long when nothing is new."""
    began = perf_counter()
    context, node_id = call.context, call.caller.node_id
    order_board, relay = context.writer.order_board, context.relay
    posted = _posted(context, node_id)
    _check_witness(context, posted.node, body)
    if body.boot != posted.node.boot:
        detail = f"node {posted.node.name} has registered on another boot since; register again"
        raise Problem(409, "node_conflict", detail, field="boot")
    _check_session(posted.node, body)
    order_board.beat(node_id, context.writer.now())
    for piece in body.logs:
        relay.take(node_id, piece)
    retry = _may_retry(posted, context.writer.now())
    taken = True
    spoken = posted.node.quarantined and _runs_nothing_else(context, posted, body)
    if body.reports or retry or spoken or _is_back(posted.node):
        taken = await _taken(context, lambda tx: _take_reports(tx, node_id, body, retry, spoken))
        context.store.at_point("reports_taken")
        posted = _posted(context, node_id)
    nothing_new = (body.epoch, body.seen) == (context.store.epoch, posted.version)
    spent = perf_counter() - began
    if nothing_new and not body.reports and body.wait and not relay.has_questions(node_id):
        most = min(parse_duration(body.wait, "wait"), posted.node.heartbeat)
        await order_board.wait(posted, most / bounds.SECOND)
        posted = _posted(context, node_id)
    began = perf_counter()
    _check_session(posted.node, body)  # another may speak for the node since
    acknowledged = [each.id for each in body.reports] if taken else []
    over = await _over(context, body.saved)
    text = _heartbeat_text(context, posted, acknowledged, over)
    context.metrics.observe_heartbeat(spent + perf_counter() - began)
    if posted.version != body.seen:
        context.store.at_point("orders_sent")
    return Response(text, media_type="application/json")


async def _over(context: Context, requests: list[str]) -> list[str]:
    """Those that have ended, for good; what is not known here may live elsewhere."""
    if not requests:
        return []
    # Not among the other reads: a heartbeat waits for nobody's list.
    found = await run_in_threadpool(context.store.get_requests, requests)
    return [id for id, view in found.items() if view.request.ended]


async def _taken(context: Context, take: Callable[[Tx], None]) -> bool:
    """Commit what a node says; False while nothing can be written. Then the node keeps its lease
    and its reports, and says them again.
    """
    try:
        await context.execute(take)
    except (DiskFull, Damaged):
        await asyncio.sleep(_PAUSE_UNWRITABLE)  # an agent that was not heard asks again at once
        return False
    return True


def _heartbeat_text(
    context: Context, posted: Posted, acknowledged: list[str], over: list[str]
) -> bytes:
    text: bytes = orjson.dumps(
        {
            "epoch": context.store.epoch,
            "index": context.writer.index,
            "version": posted.version,
            "acknowledged": acknowledged,
            "orders": orjson.Fragment(orders_text(posted, context.writer.now())),
            "logs": context.relay.questions(posted.node.id),
            "over": over,
            "quarantined": posted.node.quarantined,
        }
        | _periods(posted.node)
    )
    return text


def _periods(node: Node) -> Json:
    return {"heartbeat": seconds(node.heartbeat), "lease": seconds(node.lease)}


def _posted(context: Context, node_id: str) -> Posted:
    posted = context.writer.order_board.posted.get(node_id)
    if posted is None:
        raise Problem(409, "unknown_node", "this node was deleted; register it again")
    return posted


def _check_witness(context: Context, node: Node, body: HeartbeatIn) -> None:
    """S25: a node that has seen a later epoch or index than ours gets no order from us, and its
    beat does not count: what it runs may be unknown to this copy of the database. Only this node is
    refused, because what one of them says must not stop the others; if the copy is old they all say
    so, and nothing is granted on any of them.
    """
    epoch, index = context.store.epoch, context.writer.index
    if body.epoch <= epoch and body.index <= index:
        return
    seen = f"epoch {body.epoch}, index {body.index}"
    _log.error("a node has seen later commits", node=node.name, seen=seen, index=index)
    raise Problem(
        409,
        "rollback_detected",
        f"node {node.name} has seen {seen} and this server is at epoch {epoch}, index {index}: its "
        "database was replaced by an older copy, or this is another server",
    )


def _is_back(node: Node) -> bool:
    """Whether the engine must learn at once that a node is heard of again."""
    if node.out is Out.DISABLE or fleet.is_failing(node):
        return False
    return node.state in (NodeState.DEGRADED, NodeState.DOWN)


def _may_retry(posted: Posted, now: int) -> bool:
    """Whether a node that could not start work has rested: nothing about it has changed for long
    enough. A server that starts counts from then.
    """
    return fleet.is_failing(posted.node) and posted.at + bounds.NODE_RETRY <= now


def _check_session(node: Node, body: HeartbeatIn) -> None:
    if body.session != node.session:
        detail = f"another agent speaks for node {node.name}; register again"
        raise Problem(409, fleet.SECOND_AGENT, detail, field="session")


def _runs_nothing_else(context: Context, posted: Posted, body: HeartbeatIn) -> bool:
    """Whether a node has seen its orders under our term and runs nothing that is not in them."""
    seen = (body.epoch, body.seen) == (context.store.epoch, posted.version)
    return seen and body.strays == 0


def _take_reports(tx: Tx, node_id: str, body: HeartbeatIn, retry: bool, spoken: bool) -> None:
    if node_id not in tx.state.nodes:
        return  # deleted meanwhile: nothing that it says is of a current attempt
    _check_session(tx.state.nodes[node_id], body)
    fleet.heard(tx.state, node_id, tx.now, retry=retry)
    if spoken:
        quarantine.spoken(tx.state, node_id, tx.now)
    for each in body.reports:
        mark = tx.state.mark()
        try:
            reports.take(tx.state, node_id, _report(each), tx.now)
        except CedeError as error:
            # One that cannot be true changes nothing, and must not hold the others up.
            tx.state.undo(mark)
            _log.warning("a report was refused", node=node_id, kind=each.kind, error=str(error))


def _report(given: ReportIn) -> reports.Report:
    fields: dict[str, Any] = given.model_dump(exclude={"id", "allocation", "seconds", "ids"})
    wanted, ids = parse_duration(given.seconds, "seconds"), tuple(given.ids)
    return reports.Report(allocation_id=given.allocation, seconds=wanted, ids=ids, **fields)

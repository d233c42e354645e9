"""Routes for agents: register once, then one heartbeat after the other.

An answer has the whole list of a node's orders, so that nothing is lost with an answer that is
lost. A heartbeat without news is held until there are new orders, and costs neither the writer nor
the database anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
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
from cede.server.api.auth import Caller
from cede.server.api.context import Context, ThisCall, answer
from cede.server.api.joining import hand_over, spendable, tokens_of
from cede.server.api.json_type import Json
from cede.server.api.node_views import checkpoints_of, orders_text
from cede.server.api.openapi import ok
from cede.server.api.permissions import API
from cede.server.api.problem import Problem
from cede.server.api.route import CedeRoute
from cede.server.api.schemas import HeartbeatOut, RegisteredOut
from cede.server.ids import new_id
from cede.server.order_board import Bridged, OrderBoard, Posted
from cede.server.writer import Tx
from cede.store import Damaged, DiskFull, Store

router = APIRouter(prefix=API, tags=["agent"], route_class=CedeRoute)

_log = structlog.get_logger("cede.agents")

_PAUSE_UNWRITABLE = 1.0


@router.post("/agent/register", responses={200: ok(RegisteredOut, examples.REGISTERED)})
async def register(body: RegisterIn, call: ThisCall) -> Response:
    """Make this machine a node, or report again what it has. A join token is answered with the
    node's own token."""
    context, caller = call.context, call.caller
    joins = caller.token.role is Role.JOIN
    if not joins:
        if caller.bridge:
            raise Problem(403, "forbidden", "this token is of a bridge, not of a node")
        mine = _posted(context, caller.node_id).node
        if mine.name != body.name:
            raise Problem(403, "forbidden", f"this token is of node {mine.name}", field="name")
    secret, digest = tokens.new_token()

    def command(tx: Tx) -> Node:
        before = _named(tx, body.name)
        join = None
        if joins:
            join = spendable(
                tx, context.store, caller.token, lambda token: _made(token, before, body.boot)
            )
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
            mine = node_subject(node.id)
            hand_over(tx, context.store, join, mine, f"node {node.name}", digest)
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
    """Whether an agent has registered or has a token for a node; the first start of a server
    makes one without."""
    return node is not None and bool(node.session or tokens_of(tx, store, node_subject(node.id)))


async def _note_refusal(context: Context, body: RegisterIn, why: str) -> None:
    """Note the refusal once for each agent, however often it tries."""
    if context.refused.get(body.name) != body.session:
        context.refused[body.name] = body.session
        await context.execute(lambda tx: fleet.refused(tx.state, body.name, why, tx.now))


def _noted(tx: Tx, node: Node) -> tuple[Node, list[str]]:
    """Return a node, and notes for its operator."""
    if node.pool_id is None or checkpoints_of(tx.state, node) != "own":
        return node, []
    pool = tx.state.pools[node.pool_id].name
    return node, [
        f"its checkpoint folder is not that of all nodes of pool {pool}: work that saved itself "
        "here waits for this node, or starts anew elsewhere; share one folder with --checkpoints"
    ]


def _named(tx: Tx, name: str) -> Node | None:
    return tx.state.nodes.named(name)


def _made(token: Token, node: Node | None, boot: str) -> bool:
    """Whether a join token made this node, on this boot."""
    return node is not None and node.boot == boot and node_subject(node.id) in token.subjects


@router.post("/agent/heartbeat", responses={200: ok(HeartbeatOut, examples.HEARTBEAT)})
async def heartbeat(body: HeartbeatIn, call: ThisCall) -> Response:
    """Report a sign of life and what happened. Reports are acknowledged once they are committed,
    also those that come too late to change anything. With `wait` the answer may take that long
    when there is nothing new."""
    began = perf_counter()
    context, caller = call.context, call.caller
    order_board, relay, now = context.writer.order_board, context.relay, context.writer.now()
    mine = _spoken_for(context, caller)
    _check_witness(context, mine.name, body)
    if body.boot != mine.first.boot:
        detail = f"{mine.name} has registered on another boot since; register again"
        raise Problem(409, "node_conflict", detail, field="boot")
    _check_session(mine, body)
    for posted in mine.posted:
        order_board.beat(posted.node.id, now)
        for piece in body.logs:
            relay.take(posted.node.id, piece)
    retry = frozenset(each.node.id for each in mine.posted if _may_retry(each, now))
    taken = True
    spoken = _runs_nothing_else(context, mine, body) and any(
        each.node.quarantined for each in mine.posted
    )
    back = any(_is_back(each.node) for each in mine.posted)
    if body.reports or body.others or retry or spoken or back:
        take = _Reports(mine.name, mine.bridge, mine.ids, body, retry, spoken).take
        taken = await _taken(context, take)
        context.store.at_point("reports_taken")
        mine = _spoken_for(context, caller)
    nothing_new = (body.epoch, body.seen) == (context.store.epoch, mine.version)
    spent = perf_counter() - began
    quiet = nothing_new and not body.reports and not body.others and body.wait
    if quiet and not any(map(relay.has_questions, mine.ids)):
        most = min(parse_duration(body.wait, "wait"), mine.first.heartbeat)
        await _wait(order_board, mine, most / bounds.SECOND)
        mine = _spoken_for(context, caller)
    began = perf_counter()
    _check_session(mine, body)  # another agent may have registered since
    acknowledged = [each.id for each in body.reports] if taken else []
    over = await _over(context, body.saved)
    text = _heartbeat_text(context, mine, acknowledged, over, heard=taken)
    context.metrics.observe_heartbeat(spent + perf_counter() - began)
    if mine.version != body.seen:
        context.store.at_point("orders_sent")
    return Response(text, media_type="application/json")


@dataclass(frozen=True, slots=True)
class _SpokenFor:
    """The node, or all nodes of the bridge, for which a caller speaks (C8)."""

    name: str
    bridge: str
    version: int
    posted: tuple[Posted, ...]

    @property
    def first(self) -> Node:
        return self.posted[0].node

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(each.node.id for each in self.posted)


def _spoken_for(context: Context, caller: Caller) -> _SpokenFor:
    if not caller.bridge:
        posted = _posted(context, caller.node_id)
        return _SpokenFor(f"node {posted.node.name}", "", posted.version, (posted,))
    board = context.writer.order_board
    bridged = board.bridges.get(caller.bridge, Bridged())
    version = bridged.version  # read first: orders posted meanwhile are sent again
    found = tuple(board.posted[each] for each in bridged.nodes if each in board.posted)
    if not found:
        raise Problem(409, "unknown_node", "the nodes of this bridge were deleted; register again")
    return _SpokenFor(f"bridge {caller.bridge}", caller.bridge, version, found)


async def _wait(board: OrderBoard, mine: _SpokenFor, seconds: float) -> None:
    if mine.bridge:
        await board.wait_for_bridge(mine.bridge, mine.version, seconds)
    else:
        await board.wait(mine.posted[0], seconds)


async def _over(context: Context, requests: list[str]) -> list[str]:
    """Return the requests that have ended for good; one that is not known here may live
    elsewhere."""
    if not requests:
        return []
    # Not by the limited readers: a heartbeat does not wait behind lists.
    found = await run_in_threadpool(context.store.get_requests, requests)
    return [id for id, view in found.items() if view.request.ended]


async def _taken(context: Context, take: Callable[[Tx], None]) -> bool:
    """Commit the reports of a node; False while nothing can be written. Then the node keeps its
    lease and its reports, and sends them again.
    """
    try:
        await context.execute(take)
    except (DiskFull, Damaged):
        # An agent whose call was not stored calls again at once.
        await asyncio.sleep(_PAUSE_UNWRITABLE)
        return False
    return True


def _heartbeat_text(
    context: Context, mine: _SpokenFor, acknowledged: list[str], over: list[str], *, heard: bool
) -> bytes:
    texts = [orders_text(each, context.writer.now()) for each in mine.posted]
    questions: list[Json] = []
    for node_id in mine.ids:
        if len(questions) < bounds.LOG_REPLIES_MAX:
            questions += context.relay.questions(node_id)
    text: bytes = orjson.dumps(
        {
            "epoch": context.store.epoch,
            "index": context.writer.index,
            "version": mine.version,
            "acknowledged": acknowledged,
            "heard": heard,
            "orders": orjson.Fragment(_joined(texts)),
            "logs": questions,
            "over": over,
            "quarantined": any(each.node.quarantined for each in mine.posted),
        }
        | _periods(mine.first)
    )
    return text


def _joined(texts: list[bytes]) -> bytes:
    """Join JSON lists into one."""
    if len(texts) == 1:
        return texts[0]
    return b"[" + b",".join(each[1:-1] for each in texts if each != b"[]") + b"]"


def _periods(node: Node) -> Json:
    return {"heartbeat": seconds(node.heartbeat), "lease": seconds(node.lease)}


def _posted(context: Context, node_id: str) -> Posted:
    posted = context.writer.order_board.posted.get(node_id)
    if posted is None:
        raise Problem(409, "unknown_node", "this node was deleted; register it again")
    return posted


def _check_witness(context: Context, name: str, body: HeartbeatIn) -> None:
    """S25: refuse a node that has seen a later epoch or index than this server; it gets no order,
    and its heartbeat does not count: its tasks may be unknown to this copy of the database.

    Only this node is refused, because the word of one must not stop the others; if the copy is old
    all nodes report it, and nothing is granted on any of them.
    """
    epoch, index = context.store.epoch, context.writer.index
    if body.epoch <= epoch and body.index <= index:
        return
    seen = f"epoch {body.epoch}, index {body.index}"
    _log.error("a node has seen later commits", node=name, seen=seen, index=index)
    raise Problem(
        409,
        "rollback_detected",
        f"{name} has seen {seen} and this server is at epoch {epoch}, index {index}: its "
        "database was replaced by an older copy, or this is another server",
    )


def _is_back(node: Node) -> bool:
    """Whether the engine must learn at once that a silent node has called again."""
    if node.out is Out.DISABLE or fleet.is_failing(node):
        return False
    return node.state in (NodeState.DEGRADED, NodeState.DOWN)


def _may_retry(posted: Posted, now: int) -> bool:
    """Whether a node that could not start work has rested: nothing about it has changed for long
    enough. A server that starts counts from then.
    """
    return fleet.is_failing(posted.node) and posted.at + bounds.NODE_RETRY <= now


def _check_session(mine: _SpokenFor, body: HeartbeatIn) -> None:
    if any(body.session != each.node.session for each in mine.posted):
        detail = f"another agent speaks for {mine.name}; register again"
        raise Problem(409, fleet.SECOND_AGENT, detail, field="session")


def _runs_nothing_else(context: Context, mine: _SpokenFor, body: HeartbeatIn) -> bool:
    """Whether a node has seen its orders under this server's term and runs no task that is not
    in them."""
    seen = (body.epoch, body.seen) == (context.store.epoch, mine.version)
    return seen and body.strays == 0


@dataclass(frozen=True, slots=True)
class _Reports:
    """The reports of a call on the nodes for which its caller speaks, to be taken in one
    transaction."""

    name: str
    bridge: str
    nodes: tuple[str, ...]
    body: HeartbeatIn
    retry: frozenset[str]
    spoken: bool

    def take(self, tx: Tx) -> None:
        state, body = tx.state, self.body
        # Without nodes deleted meanwhile: no report on them is of a current attempt.
        nodes = [each for each in self.nodes if each in state.nodes]
        for node_id in nodes:
            if state.nodes[node_id].session != body.session:
                detail = f"another agent speaks for {self.name}; register again"
                raise Problem(409, fleet.SECOND_AGENT, detail, field="session")
        for node_id in nodes:
            fleet.heard(state, node_id, tx.now, retry=node_id in self.retry)
            if self.spoken:
                quarantine.spoken(state, node_id, tx.now)
        if self.bridge:
            self._take_others(tx)
        for each in body.reports:
            node_id = self._node_of(tx, each)
            if node_id not in state.nodes:
                continue
            mark = state.mark()
            try:
                reports.take(state, node_id, _report(each), tx.now)
            except CedeError as error:
                # A report that cannot be true changes nothing, and must not hold the others up.
                state.undo(mark)
                _log.warning("a report was refused", node=node_id, kind=each.kind, error=str(error))

    def _take_others(self, tx: Tx) -> None:
        for each in self.body.others:
            node = _named(tx, each.node)
            if node is not None and node.bridge == self.bridge:
                fleet.others_hold(tx.state, node.id, each.others, each.why, tx.now)

    def _node_of(self, tx: Tx, report: ReportIn) -> str:
        """Return the node that a report is about; for a bridge the task's node, if it is one of
        its own."""
        if not self.bridge:
            return self.nodes[0]
        allocation = tx.state.allocations.get(report.allocation)
        if allocation is not None and report.task < len(allocation.members):
            node_id = allocation.members[report.task].node_id
            if tx.state.nodes[node_id].bridge == self.bridge:
                return node_id
        return self.nodes[0]


def _report(given: ReportIn) -> reports.Report:
    apart = {"id", "allocation", "seconds", "ids", "devices"}
    fields: dict[str, Any] = given.model_dump(exclude=apart)
    wanted, ids = parse_duration(given.seconds, "seconds"), tuple(given.ids)
    devices = {key: tuple(names) for key, names in given.devices.items()}
    return reports.Report(
        allocation_id=given.allocation, seconds=wanted, ids=ids, devices=devices, **fields
    )

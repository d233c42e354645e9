"""Nodes, members and orders as JSON."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from cede.engine.lifecycle.orders import Order
from cede.engine.state.state import State
from cede.model.allocation import Allocation, Member
from cede.model.durations import seconds
from cede.model.fields import shown
from cede.model.node import Node
from cede.model.request import Request
from cede.model.stopping import Ask, StopProgress
from cede.model.token import name_in
from cede.model.work import Work
from cede.server.api.json_type import Json
from cede.server.order_board import Posted

_QUARANTINED = "restored: its agent has not said yet that it runs nothing unknown"

# From a node's id to its name. A node that is gone is shown by its id.
Naming = Callable[[str], str]


def orders_text(posted: Posted, now: int) -> bytes:
    """Return the orders of a node as JSON; made once, unless they contain how much time is left."""
    if posted.text is not None:
        return posted.text
    text: bytes = orjson.dumps([order_out(each, now) for each in posted.orders])
    if not any(each.asks for each in posted.orders):
        posted.text = text
    return text


def order_out(order: Order, now: int) -> Json:
    return shown(order.stop_policy) | {
        "allocation": order.allocation_id,
        "request": order.request_id,
        "attempt": order.attempt,
        "task": order.task,
        "tasks": len(order.nodes),
        "do": order.do,
        "work": work_out(order.work),
        "amounts": dict(order.amounts),
        "devices": {key: list(names) for key, names in order.devices.items()},
        "nodes": list(order.nodes),
        "hint": order.hint,
        "step": order.step,
        "seconds_left": seconds(max(0, order.until - now)) if order.asks else 0,
        "grace": seconds(order.grace),
        "cause": order.cause,
        "keep": order.keep,
        "resume": order.resume,
        "on_silence": order.on_silence.value,
        "walltime": seconds(order.walltime),
        "pool": order.pool,
        "subject": order.subject,
        "owner": name_in(order.owner),
        "array": None if order.array is None else order.array._asdict(),
    }


def work_out(work: Work) -> Json:
    return {
        "argv": list(work.argv),
        "env": dict(work.env),
        "directory": work.directory,
        "user": work.user,
    }


def shape_out(request: Request) -> Json | None:
    shape = request.shape
    if shape is None:
        return None
    return {"resources": dict(shape.amounts), **shown(shape)}


def member_out(member: Member, name: Naming) -> Json:
    return {
        "task": member.task,
        "node": name(member.node_id),
        "devices": {key: list(names) for key, names in member.devices.items()},
        "phase": member.phase.value,
        "saved": member.saved or None,
        "exit_code": member.exit_code,
        "cause": member.cause,
    }


def stop_progress_out(stop_progress: StopProgress, now: int) -> Json:
    return {
        "hint": stop_progress.hint,
        "hinted_at": seconds(stop_progress.hinted_at),
        "seconds_left": seconds(max(0, stop_progress.until - now)),
        "answered": stop_progress.answered,
        "extended": stop_progress.extended,
        "deferred": seconds(stop_progress.deferred),
        "saved": stop_progress.saved,
        "failed": stop_progress.failed,
    }


def ask_out(ask: Ask, now: int) -> Json:
    return {
        "hint": ask.number,
        "asked_at": seconds(ask.at),
        "seconds_left": seconds(max(0, ask.until - now)),
    }


def node_out(state: State, node: Node, heard: int, now: int) -> Json:
    """Return a node with what is on it; its allocations are only for callers that may see their
    requests."""
    held: dict[str, int] = {}
    others = {key: amount for key, amount in node.others.items() if key in node.amounts}
    on_it = state.on_node(node)
    for allocation in on_it:
        tasks = sum(member.node_id == node.id for member in allocation.members)
        for key, amount in allocation.each.items():
            if key in node.amounts:
                held[key] = held.get(key, 0) + amount * tasks
    return {
        "id": node.id,
        "name": node.name,
        "state": node.state.value,
        "out": node.out.value,
        "reason": node.reason or (_QUARANTINED if node.quarantined else ""),
        "quarantined": node.quarantined,
        "pool": None if node.pool_id is None else state.pools[node.pool_id].name,
        "amounts": dict(node.amounts),
        "held": held,
        "bridge": node.bridge or None,
        "others": others,
        "others_why": node.others_why,
        "free": {
            key: max(free - others.get(key, 0), min(free, 0))
            for key, amount in node.amounts.items()
            if (free := amount - held.get(key, 0)) is not None
        },
        "devices": {key: list(names) for key, names in node.devices.items()},
        "labels": dict(node.labels),
        "group": node.group,
        "fingerprint": node.fingerprint,
        "heartbeat": seconds(node.heartbeat),
        "silent": seconds(max(0, now - heard)),
        "failures": node.failures,
        "created": node.created,
        "claimed_by": node.claimed_by or None,
        "lease": seconds(node.lease),
        "checkpoints": checkpoints_of(state, node),
        "allocations": [_on_node(state, each, node) for each in on_it],
    }


def checkpoints_of(state: State, node: Node) -> str | None:
    """Return whether saved work of this node can go on elsewhere in its pool: its checkpoint
    folder is `shared` with every other node, or it is its `own` or a part's.
    """
    if not node.folder or node.pool_id is None:
        return None
    return "shared" if len(state.inventories[node.pool_id].folders) == 1 else "own"


def _on_node(state: State, allocation: Allocation, node: Node) -> Json:
    request = state.requests[allocation.request_id]
    mine = [member for member in allocation.members if member.node_id == node.id]
    return {
        "request": request.id,
        "subject": str(request.subject),
        "attempt": allocation.attempt,
        "state": allocation.state.value,
        "tasks": [member.task for member in mine],
        "devices": sorted(
            name for each in mine for names in each.devices.values() for name in names
        ),
    }

"""The fleet: nodes register, fall silent, come back, are taken out of service and are deleted.

A node's own absences and operators' orders are kept apart: a node that was drained and away comes
back drained. Only registering and deleting change a pool's capacity.
"""

from __future__ import annotations

from dataclasses import dataclass

from cede.engine.admin import edits, quarantine
from cede.engine.admin.membership import drop_promises, pool_for
from cede.engine.admin.node_lease import lease_of, leased
from cede.engine.lifecycle import endings, reports
from cede.engine.lifecycle.stopping import request_stop, stop_now
from cede.engine.state.due import gone_at, keeps
from cede.engine.state.state import State
from cede.model import bounds
from cede.model.allocation import Allocation, Phase
from cede.model.amounts import parse_amounts, total
from cede.model.copying import replace
from cede.model.errors import Conflict, Invalid, NotFound
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.node import (
    SILENT_AFTER,
    Node,
    NodeState,
    Out,
    parse_devices,
    parse_group,
    parse_labels,
    parse_node_amounts,
)
from cede.model.reason import Code, Reason
from cede.model.subject import parse_name

SECOND_AGENT = "second_agent"


@dataclass(frozen=True, slots=True)
class Caller:
    """The agent that registers. `own`: it has the token of the node of that name. `previous` is the
    session that its data folder had before. `has_agent`: an agent has already spoken for the node.
    """

    own: bool = False
    previous: str = ""
    has_agent: bool = True


NEWCOMER = Caller()


def refused(state: State, name: str, why: str, now: int) -> None:
    """Record on a node that another agent tried to speak for it."""
    state.now = now
    if (node := state.nodes.named(name)) is not None:
        state.emit("node_refused", pool_id=node.pool_id, node=node.name, reason=why)


def register(
    state: State,
    *,
    id: str,
    name: object,
    amounts: object,
    devices: object = None,
    labels: object = None,
    group: object = "",
    fingerprint: object = "",
    boot: object = "",
    heartbeat: int = bounds.HEARTBEAT_DEFAULT,
    folder: object = "",
    protocol: int = 1,
    beside_server: bool = False,
    session: object = "",
    machine: object = "",
    bridge: str = "",
    created: str = "",
    now: int,
    caller: Caller = NEWCOMER,
) -> Node:
    """Register a machine with what it has."""
    state.now = now
    has = parse_node_amounts(amounts)
    node = Node(
        id=id,
        name=parse_name(name, "name"),
        amounts=has,
        devices=parse_devices({} if devices is None else devices, has, "devices"),
        labels=parse_labels({} if labels is None else labels, "labels"),
        group=parse_group(group),
        fingerprint=_word(fingerprint, "fingerprint"),
        boot=_word(boot, "boot"),
        heartbeat=heartbeat,
        folder=_word(folder, "folder"),
        protocol=protocol,
        beside_server=beside_server,
        session=_word(session, "session"),
        machine=_word(machine, "machine"),
        bridge=bridge,
        created=created,
    )
    node = replace(node, pool_id=pool_for(state, node))
    known = state.nodes.named(node.name)
    if known is None:
        # After a restore it may be a node that the copy does not know, with work on it.
        node = replace(node, lease=lease_of(state, node), quarantined=quarantine.is_on(state))
        state.put(node)
        state.emit("node_registered", pool_id=node.pool_id, node=node.name, amounts=dict(has))
        count_capacity(state, node.pool_id)
        return node
    if known.bridge != node.bridge and caller.has_agent:
        raise Conflict(SECOND_AGENT, _other_way(known, node))
    _refuse_second_agent(state, known, node, caller)
    return _again(state, known, node)


def _refuse_second_agent(state: State, known: Node, node: Node, caller: Caller) -> None:
    """Refuse a second agent for a node.

    Another agent may speak for a node once the first is silent and no work is on it that its agent
    may run. Work that stops with its lease has left the node then (S14).
    """
    if not caller.has_agent:
        return
    silent = state.beats.get(known.id, 0) + SILENT_AFTER * known.heartbeat <= state.now
    if not known.session and (caller.own or not node.session):
        # An agent of an earlier protocol, or the same agent after its upgrade.
        if not caller.own and not silent and known.boot != node.boot:
            raise Conflict(
                "node_conflict",
                f"a node named {known.name} is alive on another machine; give this one another "
                "name",
            )
        return
    goes_on = known.session == node.session or (caller.own and known.session == caller.previous)
    # A machine that started again has stopped its work; a copy of its disk has not, and only the
    # first one's heartbeats tell the two apart.
    if goes_on and known.machine == node.machine and (known.boot == node.boot or silent):
        return
    held = [each for each in state.on_node(known) if state.requests[each.request_id].work]
    if not silent:
        raise Conflict(
            SECOND_AGENT,
            f"another agent speaks for node {known.name}; end that one, or give this one another "
            "name",
        )
    if held:
        names = ", ".join(each.request_id for each in held[:10])
        raise Conflict(
            SECOND_AGENT,
            f"node {known.name} is silent and holds {names}, which another agent of that name may "
            f"run: wait until its lease is over; if its machine is gone for good, disable the node "
            "and delete it with force",
        )


def _other_way(known: Node, node: Node) -> str:
    speaks = f"bridge {known.bridge}" if known.bridge else "an agent"
    return (
        f"{speaks} speaks for node {known.name}; end that one and delete the node, or "
        f"{'leave it out' if node.bridge else 'give this one another name'}"
    )


def _again(state: State, known: Node, node: Node) -> Node:
    """Register a known node once more."""
    became = replace(
        known,
        amounts=node.amounts,
        devices=node.devices,
        labels=node.labels,
        group=node.group,
        fingerprint=node.fingerprint,
        pool_id=node.pool_id,
        boot=node.boot,
        heartbeat=node.heartbeat,
        folder=node.folder,
        protocol=node.protocol,
        session=node.session,
        machine=node.machine,
        bridge=node.bridge,
        # Its work was promised to be kept, and may not have heard otherwise.
        beside_server=node.beside_server or (known.beside_server and bool(state.on_node(known))),
    )
    became = leased(state, became)
    fixed = (known.amounts, known.devices, known.pool_id)
    if known.pool_id != became.pool_id and state.on_node(known):
        raise Conflict(
            "node_conflict",
            f"node {known.name} holds work and its labels are of another pool now; drain it first",
        )
    if known.amounts != became.amounts:
        became = replace(became, edited=state.next_index())
    if became != known:
        if (known.labels, known.fingerprint, *fixed) != (
            *(became.labels, became.fingerprint),
            *(became.amounts, became.devices, became.pool_id),
        ):
            drop_promises(state, known)
        state.put(became)
        state.emit("node_registered", pool_id=became.pool_id, node=became.name)
    if (known.amounts, known.pool_id) != (became.amounts, became.pool_id):
        for pool_id in dict.fromkeys((known.pool_id, became.pool_id)):
            count_capacity(state, pool_id)
    return state.nodes[known.id]


def _word(value: object, field: str) -> str:
    if not isinstance(value, str) or len(value) > bounds.LABEL_LENGTH_MAX:
        raise Invalid(field, f"must be text of at most {bounds.LABEL_LENGTH_MAX} characters")
    if not value.isprintable():
        raise Invalid(field, "must be printable")
    return value


def others_hold(state: State, node_id: str, amounts: object, why: object, now: int) -> None:
    """Set the amounts that outside jobs hold of a node in its bridge's cluster: all of it if the
    cluster's node takes no work.
    """
    state.now = now
    node = state.nodes[node_id]
    others = {key: n for key, n in parse_amounts(amounts, "others").items() if n}
    others = {key: min(n, node.amounts[key]) for key, n in others.items() if key in node.amounts}
    text = _word(why, "why") if others else ""
    if (node.others, node.others_why) != (others, text):
        state.put(replace(node, others=others, others_why=text))


def count_capacity(state: State, pool_id: str | None) -> None:
    """Set the capacity of a pool of nodes to the sum of its registered nodes, whatever their state
    (S4).
    """
    if pool_id is None:
        return
    pool = state.pools[pool_id]
    mine = [each.amounts for each in state.nodes.values() if each.pool_id == pool_id]
    if (summed := total(mine)) == pool.capacity:
        return
    edits.set_capacity(state, pool, summed)


def find_node(state: State, name_or_id: str) -> Node:
    node = state.nodes.get(name_or_id) or state.nodes.named(name_or_id)
    if node is None:
        raise NotFound("node", name_or_id)
    return node


# Operators ------------------------------------------------------------------------------------


def drain(state: State, node_id: str, now: int, reason: str = "") -> Node:
    """Take a node out of service for new work; when its work has ended by itself, the node is
    drained.
    """
    state.now = now
    node = find_node(state, node_id)
    if node.out is Out.DRAIN:
        return node
    if node.out is Out.DISABLE:
        raise Conflict("node_disabled", f"node {node.name} is disabled; enable it first")
    state.put(_with_state(replace(node, out=Out.DRAIN, reason=reason), _drained(state, node)))
    state.emit("node_draining", pool_id=node.pool_id, node=node.name, reason=reason)
    return state.nodes[node.id]


def _drained(state: State, node: Node) -> NodeState:
    if node.state is NodeState.DOWN:
        return NodeState.DOWN
    return NodeState.DRAINING if state.on_node(node) else NodeState.DRAINED


def undrain(state: State, node_id: str, now: int) -> Node:
    """Bring a node back into service at once, also while earlier work still runs."""
    state.now = now
    node = find_node(state, node_id)
    if node.out is not Out.DRAIN:
        raise Conflict("not_drained", f"node {node.name} is {node.state}, not drained")
    if node.state is NodeState.DOWN:  # no longer drained, but still away
        state.put(replace(node, out=Out.NO, reason="silent"))
        return state.nodes[node.id]
    state.put(_with_state(replace(node, out=Out.NO, reason=""), NodeState.READY))
    state.emit("node_ready", pool_id=node.pool_id, node=node.name)
    return state.nodes[node.id]


def disable(state: State, node_id: str, now: int, reason: str = "") -> Node:
    """Take a node out of service at once: its work is stopped and goes back to the queue."""
    state.now = now
    node = find_node(state, node_id)
    state.put(_with_state(replace(node, out=Out.DISABLE, reason=reason), NodeState.DOWN))
    state.emit("node_down", pool_id=node.pool_id, node=node.name, reason=reason or "disabled")
    why = Reason(Code.NODE_LOST, {"node": node.name, "cause": "disabled"})
    for allocation in state.on_node(node):
        if state.requests[allocation.request_id].status is not RequestStatus.PREEMPTING:
            request_stop(state, allocation.id, why, taken_for=None)
    return state.nodes[node.id]


def is_failing(node: Node) -> bool:
    """Whether the node takes no work because it could not start any."""
    return node.state is NodeState.DEGRADED and node.failures >= bounds.NODE_FAILURES_MAX


def enable(state: State, node_id: str, now: int) -> Node:
    """Bring a node back into service after it was disabled, could not start work, or was
    quarantined by a restore.
    """
    state.now = now
    node = find_node(state, node_id)
    if node.state is not NodeState.DOWN and not is_failing(node):
        if node.quarantined:
            quarantine.spoken(state, node.id, now)
            return state.nodes[node.id]
        raise Conflict(
            "not_down",
            f"node {node.name} is {node.state}; only one that is down, in quarantine or could not "
            "start work is enabled",
        )
    node = replace(node, out=Out.NO, reason="", failures=0, quarantined=False)
    silent = state.beats.get(node.id, 0) + SILENT_AFTER * node.heartbeat <= state.now
    if silent:
        state.put(replace(node, reason="silent"))
    else:
        state.put(_with_state(node, NodeState.READY))
        state.emit("node_ready", pool_id=node.pool_id, node=node.name)
    return state.nodes[node.id]


def delete(state: State, node_id: str, now: int, *, force: bool = False) -> Node:
    """Delete a node, which changes capacity. With `force` an operator vouches that nothing runs
    there any more, and its units are given back.
    """
    state.now = now
    node = find_node(state, node_id)
    held = state.on_node(node)
    if held and not (force and node.state is NodeState.DOWN):
        names = ", ".join(each.request_id for each in held[:10])
        raise Conflict(
            "in_use",
            f"node {node.name} holds {names}; drain it, or if the machine is gone for good, "
            "disable and delete it with force",
        )
    for allocation in held:
        _lose_members(state, allocation, node)
    for allocation in state.on_node(node):
        others = [each for each in allocation.members if each.phase is not Phase.ENDED]
        raise Conflict(
            "in_use",
            f"request {allocation.request_id} on node {node.name} also runs on "
            f"{state.nodes[others[0].node_id].name}; disable node {node.name} so that it stops "
            "there, then delete it",
        )
    drop_promises(state, node)
    state.drop(node)
    _unpin(state, node.folder)
    state.emit("node_deleted", pool_id=node.pool_id, node=node.name)
    count_capacity(state, node.pool_id)
    return node


def _unpin(state: State, folder: str) -> None:
    """Remove pins to a folder that is gone with its node, except pins without an end."""
    if any(each.folder == folder for each in state.nodes.values()):
        return
    for request in list(state.waiting()):
        pin = request.pin
        if pin is not None and pin.until is not None and folder in pin.folders:
            state.put(replace(request, pin=None))


def _with_state(node: Node, became: NodeState) -> Node:
    return node if node.state is became else replace(node, state=became)


# Silence --------------------------------------------------------------------------------------


def heard(state: State, node_id: str, now: int, *, retry: bool = False) -> None:
    """Note a heartbeat: a silent node is back, and its work was not lost. With `retry` a node that
    could not start work is back too, with half of its failures, so that fewer new ones take it out
    again.
    """
    state.now = now
    state.beats[node_id] = max(now, state.beats.get(node_id, 0))
    node = state.nodes[node_id]
    if node.out is Out.DISABLE or node.state not in (NodeState.DEGRADED, NodeState.DOWN):
        return
    if retry and is_failing(node):
        node = replace(node, failures=node.failures // 2)
        state.put(node)
    if is_failing(node):
        return  # alive, but it cannot start work
    back = _drained(state, replace(node, state=NodeState.READY))
    became = back if node.out is Out.DRAIN else NodeState.READY
    reason = node.reason if node.out is Out.DRAIN else ""
    state.put(replace(node, state=became, reason=reason))
    state.emit("node_ready", pool_id=node.pool_id, node=node.name)
    for allocation in state.on_node(node):
        away = [m for m in allocation.members if state.nodes[m.node_id].state is NodeState.DOWN]
        if allocation.state is AllocationState.LOST and not away:
            _found(state, allocation)


def _found(state: State, allocation: Allocation) -> None:
    """Let a lost allocation of agents go on, or go on stopping, when all its nodes are back."""
    request = state.requests[allocation.request_id]
    if request.work is None:
        return  # its client holds it, and must renew itself
    if request.status is RequestStatus.PREEMPTING:
        stop_now(state, allocation)
    else:
        state.put(replace(allocation, state=AllocationState.RUNNING))


def silence(state: State, node_id: str) -> bool:
    """Degrade a silent node, then mark it down; whether anything changed."""
    node = state.nodes.get(node_id)
    if node is None:
        return False
    at = state.beats.get(node_id, state.now)
    if gone_at(node, at) <= state.now:
        return _down(state, node)
    late = at + SILENT_AFTER * node.heartbeat <= state.now
    if late and node.state is NodeState.READY:
        state.put(replace(node, state=NodeState.DEGRADED, reason="silent"))
        state.emit("node_degraded", pool_id=node.pool_id, node=node.name, reason="silent")
        return True
    return False


def _down(state: State, node: Node) -> bool:
    """Mark a node down: work that stops with its lease has ended, other work is lost and stays
    held.
    """
    changed = node.state is not NodeState.DOWN
    if changed:
        reason = node.reason if node.out is not Out.NO else "silent"
        state.put(replace(node, state=NodeState.DOWN, reason=reason))
        state.emit("node_down", pool_id=node.pool_id, node=node.name, reason="silent")
    for allocation in state.on_node(node):
        request = state.requests[allocation.request_id]
        if request.work is None:
            continue  # its client holds it, by its own lease
        if keeps(node, request):
            if allocation.state is not AllocationState.LOST:
                endings.lose(state, allocation)
                changed = True
        else:
            _lose_members(state, allocation, node)
            changed = True
    return changed


def _lose_members(state: State, allocation: Allocation, node: Node) -> None:
    for member in allocation.members:
        current = state.allocations[allocation.id]
        mine = member.node_id == node.id and current.members[member.task].phase is not Phase.ENDED
        if mine and current.live:
            reports.ended(state, current, member.task, None, "node_lost")


def settle_drains(state: State) -> bool:
    """Mark draining nodes as drained once their work has ended; whether there were any."""
    done = [node for each in state.draining if not state.on_node(node := state.nodes[each])]
    for node in done:
        state.put(replace(node, state=NodeState.DRAINED))
        state.emit("node_drained", pool_id=node.pool_id, node=node.name)
    return bool(done)

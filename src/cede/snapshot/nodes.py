"""Nodes in a snapshot: machines, and the tasks and devices on them.

A snapshot written by hand may name just the nodes of a holder's tasks: free devices are found for
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cede.engine.state.state import State
from cede.model import bounds
from cede.model.allocation import Allocation, Member, Phase
from cede.model.amounts import parse_amounts
from cede.model.durations import parse_duration
from cede.model.lifecycle import AllocationState
from cede.model.node import (
    Node,
    NodeState,
    Out,
    parse_devices,
    parse_group,
    parse_labels,
    parse_node_amounts,
)
from cede.model.shape import Footprint, parse_count
from cede.model.subject import parse_name
from cede.snapshot.fields import (
    Entry,
    SnapshotError,
    at,
    count,
    entries,
    entry,
    flag,
    text,
    texts,
    timed,
    word,
)

NODE = frozenset(
    {
        *("name", "id", "amounts", "devices", "labels", "group", "fingerprint", "state", "out"),
        *("reason", "heartbeat", "heard_at", "taken_at", "failures", "shrunk", "claimed_by"),
        *("lease", "promised", "folder", "beside_server", "quarantined", "bridge", "others"),
        "others_why",
    }
)
MEMBER = frozenset(
    {"node", "devices", "phase", "saved", "exit_code", "cause", "ids", "looked", "unread"}
)

_UNSTARTED = (AllocationState.GRANTED, AllocationState.STARTING)


def read_node(state: State, path: str, value: object, now: int) -> None:
    fields = entry(value, path, NODE)
    with at(path):
        name = parse_name(fields.get("name"), "name")
        if state.nodes.named(name) is not None:
            raise SnapshotError(f"{path}.name", f"{name!r} is there twice")
        amounts = parse_node_amounts(fields.get("amounts"))
        out = word(fields, path, "out", _out(fields))
        node = Node(
            id=parse_name(fields.get("id", name), "id"),
            name=name,
            amounts=amounts,
            devices=parse_devices(fields.get("devices") or {}, amounts, "devices"),
            labels=parse_labels(fields.get("labels") or {}, "labels"),
            group=parse_group("" if fields.get("group") is None else fields["group"]),
            fingerprint=text(fields, path, "fingerprint"),
            state=word(fields, path, "state", NodeState.READY),
            out=out,
            reason=text(fields, path, "reason"),
            heartbeat=_heartbeat(fields),
            failures=count(fields, path, "failures", 0),
            claimed_by=text(fields, path, "claimed_by"),
            edited=bounds.AMOUNT_MAX if flag(fields, path, "shrunk") else 0,
            lease=timed(fields, path, "lease", bounds.NODE_LEASE_DEFAULT),
            promised=timed(fields, path, "promised", 0),
            folder=text(fields, path, "folder"),
            beside_server=flag(fields, path, "beside_server"),
            quarantined=flag(fields, path, "quarantined"),
            bridge=text(fields, path, "bridge"),
            others=parse_amounts(fields.get("others") or {}, "others"),
            others_why=text(fields, path, "others_why"),
        )
    if node.id in state.nodes:
        raise SnapshotError(f"{path}.id", f"{node.id!r} is there twice")
    _check_out(path, node)
    state.beats[node.id] = timed(fields, path, "heard_at", now)
    taken_at = timed(fields, path, "taken_at", None)
    if taken_at is not None:
        if taken_at > now:
            raise SnapshotError(f"{path}.taken_at", "is after the instant of the snapshot")
        state.staged[node.id] = taken_at
    state.put(node)


def _out(fields: Entry) -> Out:
    """The default of `out`: a draining node was asked to drain."""
    return Out.DRAIN if fields.get("state") in ("draining", "drained") else Out.NO


def _check_out(path: str, node: Node) -> None:
    drains = node.state in (NodeState.DRAINING, NodeState.DRAINED)
    fine = {
        Out.NO: not drains,
        Out.DRAIN: drains or node.state is NodeState.DOWN,
        Out.DISABLE: node.state is NodeState.DOWN,
    }
    if not fine[node.out]:
        raise SnapshotError(f"{path}.out", f"cannot be {node.out} while it is {node.state}")


def _heartbeat(fields: Entry) -> int:
    if fields.get("heartbeat") is None:
        return bounds.HEARTBEAT_DEFAULT
    return parse_duration(fields["heartbeat"], "heartbeat", most=bounds.HEARTBEAT_MAX)


# Where tasks sit ------------------------------------------------------------------------------


def footprint(state: State, path: str, fields: Entry, pool_id: str, tasks: int) -> Footprint:
    """The footprint of a promise, `nodes: [[name, tasks], …]`: all of its owner's tasks, on nodes
    of the pool.
    """
    given = entries(fields, "nodes", path)
    if (pool_id in state.inventories) != bool(given):
        has = "names the nodes of its tasks: [[name, tasks], …]" if not given else "has no nodes"
        raise SnapshotError(f"{path}.nodes", f"in pool {pool_id} it {has}")
    found = []
    for where, each in given:
        if not isinstance(each, Sequence) or isinstance(each, str) or len(each) != 2:
            raise SnapshotError(where, "must be a node's name and a number of tasks")
        with at(path):
            number = parse_count(each[1], where.removeprefix(f"{path}."))
        found.append((node_id(state, where, each[0], pool_id), number))
    if given and (len(dict(found)) != len(found) or sum(n for _, n in found) != tasks):
        raise SnapshotError(f"{path}.nodes", f"must hold its {tasks} tasks, each node once")
    return tuple(found)


def node_id(state: State, path: str, name: object, pool_id: str) -> str:
    mine = {each.name: each.id for each in state.nodes.values() if each.pool_id == pool_id}
    if not isinstance(name, str) or name not in mine:
        known = ", ".join(mine) or "none"
        raise SnapshotError(path, f"no node {name!r:.80} in pool {pool_id}; known are {known}")
    return mine[name]


def whole_node(state: State, path: str, fields: Entry, pool_ids: set[str]) -> dict[str, int]:
    """The amounts of a task that has a node to itself, if all nodes that it may use are alike."""
    named = fields.get("nodes")
    kinds = {
        tuple(sorted(each.amounts.items()))
        for each in state.nodes.values()
        if each.pool_id in pool_ids and (not isinstance(named, list) or each.name in named)
    }
    if len(kinds) != 1:
        problem = "its nodes are not alike" if kinds else "there are no such nodes"
        raise SnapshotError(f"{path}.nodes", f"{problem}: say gpus_per_node, or resources")
    return dict(*kinds)


def members(
    state: State, path: str, fields: Entry, pool_id: str, tasks: int, held: AllocationState
) -> tuple[Member, ...]:
    """The members of a holder as far as the snapshot has them: devices may be missing, and are then
    found.
    """
    which = "members" if fields.get("members") else "nodes"
    given = entries(fields, which, path)
    if pool_id not in state.inventories:
        if given:
            raise SnapshotError(f"{path}.{which}", f"pool {pool_id} has no nodes")
        return ()
    if len(given) != tasks:
        raise SnapshotError(f"{path}.{which}", f"must name the nodes of all {tasks} tasks")
    phase = Phase.ASSIGNED if held in _UNSTARTED else Phase.STARTED
    if which == "nodes":
        return tuple(
            Member(task, node_id(state, where, name, pool_id), {}, phase)
            for task, (where, name) in enumerate(given)
        )
    return tuple(
        _member(state, where, each, task, pool_id, phase)
        for task, (where, each) in enumerate(given)
    )


def _member(
    state: State, path: str, value: object, task: int, pool_id: str, phase: Phase
) -> Member:
    fields = entry(value, path, MEMBER)
    member = Member(
        task=task,
        node_id=node_id(state, f"{path}.node", fields.get("node"), pool_id),
        devices=_devices(path, fields),
        phase=word(fields, path, "phase", phase),
        saved=text(fields, path, "saved"),
        exit_code=count(fields, path, "exit_code", None),
        cause=text(fields, path, "cause"),
        ids=texts(fields, path, "ids"),
        looked=flag(fields, path, "looked"),
        unread=flag(fields, path, "unread"),
    )
    return member


def _devices(path: str, fields: Entry) -> dict[str, tuple[str, ...]]:
    value = fields.get("devices") or {}
    fine = isinstance(value, dict) and all(
        isinstance(names, list) and all(isinstance(each, str) for each in names)
        for names in value.values()
    )
    if not fine:
        raise SnapshotError(f"{path}.devices", "must be a map from key to device names")
    return {str(key): tuple(names) for key, names in value.items()}


class Devices:
    """Assigns devices to holders: named devices are taken first, then free ones are given."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._taken: dict[tuple[str, str, str], str] = {}

    def named(self, path: str, allocation: Allocation) -> None:
        for member in allocation.members:
            node = self._state.nodes[member.node_id]
            wanted = dict(_wanted(node, allocation))
            for key, names in member.devices.items():
                where = f"{path}.members[{member.task}].devices.{key}"
                unknown = set(names) - set(node.devices.get(key, ()))
                if unknown and not node.edited and not node.bridge:  # else it may have had them
                    raise SnapshotError(where, f"node {node.name} has no {min(unknown)!r:.80}")
                if len(names) != wanted.get(key, 0) and not node.bridge:
                    raise SnapshotError(where, f"must name {wanted.get(key, 0)} devices")
                for name in names:
                    self._take(where, node, key, name)

    def _take(self, where: str, node: Node, key: str, name: str) -> None:
        if (node.id, key, name) in self._taken:
            raise SnapshotError(where, f"device {name!r} of node {node.name} is held twice")
        self._taken[node.id, key, name] = where

    def found(self, path: str, allocation: Allocation) -> tuple[Member, ...]:
        """The members, with free devices for those that named none."""
        found = []
        for member in allocation.members:
            node = self._state.nodes[member.node_id]
            devices: dict[str, tuple[str, ...]] = dict(member.devices)
            for key, amount in _wanted(node, allocation):
                if key in devices:
                    continue
                free = [n for n in node.devices[key] if (node.id, key, n) not in self._taken]
                if len(free) < amount:
                    problem = f"node {node.name} has no {amount} {key} left"
                    raise SnapshotError(f"{path}.nodes", problem)
                devices[key] = tuple(free[:amount])
                for name in devices[key]:
                    self._take(path, node, key, name)
            found.append(replace(member, devices=devices))
        return tuple(found)


def _wanted(node: Node, allocation: Allocation) -> Iterator[tuple[str, int]]:
    """The number of devices of each key that one member holds."""
    for key, amount in allocation.each.items():
        if key in node.devices and amount:
            yield key, amount

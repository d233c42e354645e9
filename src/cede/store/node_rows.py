"""Rows of what a pool of machines brings: nodes, tasks, members, partings.

Most requests have none of it, and theirs is NULL: one byte. The rest are arrays in the order of the
fields, without their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cede.model.allocation import Allocation, Member, Phase
from cede.model.node import Node, NodeState, Out
from cede.model.parting import Ask, Checkpoint, Farewell, Parting, Protocol, Saved
from cede.model.request import PLAIN, Request
from cede.model.shape import Footprint, Shape, Topology
from cede.model.work import Work
from cede.store.json_text import decode, encode

Row = tuple[Any, ...]


def node_row(node: Node) -> Row:
    return (
        node.id,
        node.name,
        node.pool_id,
        node.state.value,
        node.out.value,
        node.reason,
        encode(dict(node.amounts)),
        encode(dict(node.devices)),
        encode(dict(node.labels)),
        node.group,
        node.fingerprint,
        node.heartbeat,
        node.boot,
        node.failures,
        node.created,
        node.edited,
        node.claimed_by,
    )


def node_from(row: Sequence[Any]) -> Node:
    (
        id_, name, pool_id, state, out, reason, amounts, devices, labels, group, fingerprint,
        heartbeat, boot, failures, created, edited, claimed_by,
    ) = row  # fmt: skip
    return Node(
        id=id_,
        name=name,
        amounts=decode(amounts),
        devices=_devices(decode(devices)),
        labels=decode(labels),
        group=group,
        fingerprint=fingerprint,
        pool_id=pool_id,
        state=NodeState(state),
        out=Out(out),
        reason=reason,
        heartbeat=heartbeat,
        boot=boot,
        failures=failures,
        edited=edited,
        claimed_by=claimed_by,
        created=created,
    )


def held_rows(allocation: Allocation) -> Iterator[Row]:
    """S3: one row for each device that a live allocation holds; the first three are the key."""
    for member in allocation.members:
        for key, devices in member.devices.items():
            for device in devices:
                yield (member.node_id, key, device, allocation.request_id, allocation.attempt)


def task_text(request: Request) -> str | None:
    """How a request sits and how it parts."""
    shape, farewell = request.shape, request.farewell
    if shape is None and farewell == PLAIN:
        return None
    return encode((_shape(shape), _farewell(farewell)))


def task_from(text: str | None) -> tuple[Shape | None, Farewell]:
    if text is None:
        return None, PLAIN
    shape, farewell = decode(text)
    return (
        None if shape is None else _shape_from(*shape),
        PLAIN if farewell is None else _farewell_from(*farewell),
    )


def _shape(shape: Shape | None) -> Row | None:
    if shape is None:
        return None
    labels, topology = dict(shape.labels), shape.topology.value
    return (
        dict(shape.amounts), shape.tasks, shape.per_node, labels, shape.fingerprint, topology,
    )  # fmt: skip


def _shape_from(
    amounts: Any, tasks: int, per_node: int | None, labels: Any, fingerprint: str, topology: str
) -> Shape:
    return Shape(amounts, tasks, per_node, labels, fingerprint, Topology(topology))


def work_text(work: Work | None) -> str | None:
    if work is None:
        return None
    return encode((work.argv, dict(work.env), work.directory, work.user))


def work_from(text: str | None) -> Work | None:
    if text is None:
        return None
    argv, *rest = decode(text)
    return Work(tuple(argv), *rest)


def _farewell(farewell: Farewell) -> Row | None:
    if farewell == PLAIN:
        return None
    return (
        farewell.checkpoint.value,
        farewell.protocol.value,
        farewell.timeout,
        farewell.deferral_max,
        farewell.interruptible,
    )


def _farewell_from(checkpoint: str, protocol: str, *rest: Any) -> Farewell:
    return Farewell(Checkpoint(checkpoint), Protocol(protocol), *rest)


def kept_text(request: Request) -> str | None:
    """The checkpoint of a request, and how often a machine lost it."""
    saved, lost_count = request.saved, request.lost_count
    if saved is None and not lost_count:
        return None
    kept = () if saved is None else (saved.id, saved.at, saved.size, saved.index)
    return encode((lost_count, *kept))


def kept_from(text: str | None) -> tuple[Saved | None, int]:
    if text is None:
        return None, 0
    lost_count, *saved = decode(text)
    return Saved(*saved) if saved else None, lost_count


def members_text(members: Sequence[Member]) -> str | None:
    if not members:
        return None
    return encode(
        [
            (
                each.task,
                each.node_id,
                dict(each.devices),
                each.phase.value,
                each.saved,
                each.exit_code,
                each.cause,
            )
            for each in members
        ]
    )


def members_from(text: str | None) -> tuple[Member, ...]:
    if text is None:
        return ()
    return tuple(
        Member(task, node_id, _devices(devices), Phase(phase), *rest)
        for task, node_id, devices, phase, *rest in decode(text)
    )


def hints_text(parting: Parting | None, asked: Ask | None) -> str | None:
    """What a holder was asked: its farewell, as a list; where it was asked to save itself and go
    on, which is rare, a map of both.
    """
    if asked is None:
        return None if parting is None else encode(_values(parting))
    return encode({"asked": _values(asked), "parting": parting and _values(parting)})


def hints_from(text: str | None) -> tuple[Parting | None, Ask | None]:
    if text is None:
        return None, None
    found = decode(text)
    if isinstance(found, list):
        return Parting(*found), None
    parting = found["parting"]
    return None if parting is None else Parting(*parting), Ask(*found["asked"])


def _values(hint: Parting | Ask) -> list[Any]:
    return [getattr(hint, name) for name in hint.__dataclass_fields__]


def with_footprint(row: Row, footprint: Footprint) -> str:
    """An earmark or a withhold; in a counted pool there is no footprint to write."""
    return encode((*row, footprint) if footprint else row)


def footprint_from(given: Any) -> Footprint:
    return tuple((node_id, tasks) for node_id, tasks in given)


def _devices(given: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {key: tuple(names) for key, names in given.items()}

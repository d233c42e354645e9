"""Rows of what a pool of machines brings: nodes, tasks, members, stops.

Most requests have none of it, and theirs is NULL: one byte. The rest are arrays in the order of the
fields, without their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cede.model.allocation import Allocation, Member, Phase
from cede.model.node import Node, NodeState, Out
from cede.model.request import PLAIN, Request
from cede.model.shape import Footprint, Shape, Topology
from cede.model.stopping import (
    Ask,
    Checkpoint,
    Pin,
    Protocol,
    Resume,
    Saved,
    StopPolicy,
    StopProgress,
)
from cede.model.work import Work
from cede.store.json_text import decode, encode

Row = tuple[Any, ...]

_OF_AGENT = ("lease", "promised", "folder", "protocol", "beside_server", "session", "machine")


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
        encode(tuple(getattr(node, name) for name in _OF_AGENT)),
    )


def node_from(row: Sequence[Any]) -> Node:
    (
        id_, name, pool_id, state, out, reason, amounts, devices, labels, group, fingerprint,
        heartbeat, boot, failures, created, edited, claimed_by, agent,
    ) = row  # fmt: skip
    # Rows of the version before end where its fields did.
    known = dict(zip(_OF_AGENT, decode(agent), strict=False)) if agent else {}
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
        **known,
    )


def held_rows(allocation: Allocation) -> Iterator[Row]:
    """S3: one row for each device that a live allocation holds; the first three are the key."""
    for member in allocation.members:
        for key, devices in member.devices.items():
            for device in devices:
                yield (member.node_id, key, device, allocation.request_id, allocation.attempt)


def task_text(request: Request) -> str | None:
    """How a request sits and how it parts."""
    shape, stop_policy = request.shape, request.stop_policy
    if shape is None and stop_policy == PLAIN:
        return None
    return encode((_shape(shape), _stop_policy(stop_policy)))


def task_from(text: str | None) -> tuple[Shape | None, StopPolicy]:
    if text is None:
        return None, PLAIN
    shape, stop_policy = decode(text)
    return (
        None if shape is None else _shape_from(*shape),
        PLAIN if stop_policy is None else _stop_policy_from(*stop_policy),
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


def _stop_policy(stop_policy: StopPolicy) -> Row | None:
    if stop_policy == PLAIN:
        return None
    return (
        stop_policy.checkpoint.value,
        stop_policy.protocol.value,
        stop_policy.timeout,
        stop_policy.deferral_max,
        stop_policy.interruptible,
        stop_policy.resume.value,
        stop_policy.resume_wait,
    )


def _stop_policy_from(
    checkpoint: str,
    protocol: str,
    timeout: int,
    deferral_max: int,
    interruptible: bool,
    resume: str = Resume.PREFERRED,
    *rest: int,
) -> StopPolicy:
    asked = (Checkpoint(checkpoint), Protocol(protocol), timeout, deferral_max, interruptible)
    return StopPolicy(*asked, Resume(resume), *rest)


def kept_text(request: Request) -> str | None:
    """The checkpoint of a request, where it may start, and how often attempts came to nothing."""
    saved, pin = request.saved, request.pin
    if saved is None and pin is None and not request.lost_count and not request.left_count:
        return None
    kept = {
        "lost": request.lost_count,
        "left": request.left_count,
        "saved": saved and _values(saved),
        "pin": pin and _values(pin),
    }
    return encode({name: value for name, value in kept.items() if value})


def kept_from(text: str | None) -> dict[str, Any]:
    """These fields of a request."""
    if text is None:
        return {}
    found = decode(text)
    if isinstance(found, list):  # as it was first written: the count, then the checkpoint
        found = {"lost": found[0], "saved": found[1:]}
    pin, saved = found.get("pin"), found.get("saved")
    return {
        "lost_count": found.get("lost", 0),
        "left_count": found.get("left", 0),
        "saved": _saved_from(*saved) if saved else None,
        "pin": Pin(tuple(pin[0]), pin[1]) if pin else None,
    }


def _saved_from(
    id: str,
    at: int,
    size: int,
    index: int,
    attempt: int = 0,
    folders: Sequence[str] = (),
    before: str = "",
) -> Saved:
    return Saved(id, at, size, index, attempt, tuple(folders), before)


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
                each.ids,
                each.looked,
                each.answered,
                each.reach,
                each.unread,
            )
            for each in members
        ]
    )


def members_from(text: str | None) -> tuple[Member, ...]:
    if text is None:
        return ()
    return tuple(_member_from(*each) for each in decode(text))


def _member_from(
    task: int,
    node_id: str,
    devices: Any,
    phase: str,
    saved: str,
    exit_code: int | None,
    cause: str,
    ids: Sequence[str] = (),
    looked: bool = False,
    answered: int = 0,
    reach: tuple[int, int] = (0, 0),
    unread: bool = False,
) -> Member:
    first = (task, node_id, _devices(devices), Phase(phase), saved, exit_code, cause)
    return Member(*first, tuple(ids), looked, answered, (reach[0], reach[1]), unread)


def hints_text(allocation: Allocation) -> str | None:
    """What a holder was asked and told; of a later attempt also where it started."""
    asked, stop_progress = allocation.asked, allocation.stop_progress
    told: dict[str, Any] = {
        "asked": asked and _values(asked),
        "parting": stop_progress and _values(stop_progress),
        "announced": allocation.announced,
    }
    told = {name: value for name, value in told.items() if value}
    if allocation.attempt > 1 and allocation.resume is not None:
        told["resume"] = allocation.resume
    return encode(told) if told else None


def hints_from(text: str | None, attempt: int) -> dict[str, Any]:
    """These fields of an allocation. Of a second or later attempt that says nothing of it, the
    resume point is not decided: also where it was written before these were written down.
    """
    found: Any = {} if text is None else decode(text)
    if isinstance(found, list):  # as it was first written: a stop and nothing else
        found = {"parting": found}
    stop_progress, asked = found.get("parting"), found.get("asked")
    return {
        "stop_progress": StopProgress(*stop_progress) if stop_progress else None,
        "asked": Ask(*asked) if asked else None,
        "announced": found.get("announced", False),
        "resume": found.get("resume", "" if attempt == 1 else None),
    }


def _values(value: StopProgress | Ask | Saved | Pin) -> list[Any]:
    return [getattr(value, name) for name in value.__dataclass_fields__]


def with_footprint(row: Row, footprint: Footprint) -> str:
    """An earmark or a withhold; in a counted pool there is no footprint to write."""
    return encode((*row, footprint) if footprint else row)


def footprint_from(given: Any) -> Footprint:
    return tuple((node_id, tasks) for node_id, tasks in given)


def _devices(given: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {key: tuple(names) for key, names in given.items()}

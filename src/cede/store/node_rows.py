"""Rows of nodes, and of tasks, members and stops.

Most requests have none of these, and store NULL: one byte. The others are arrays in the order of
the fields, without their names. Equal rows share one value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from cede.model.allocation import Allocation, Member
from cede.model.node import Node, NodeState, Out
from cede.model.request import PLAIN, Request
from cede.model.shape import Shape
from cede.model.stopping import Ask, Pin, Saved, StopPolicy, StopProgress
from cede.model.work import Work
from cede.store.arrays import array_of, from_array
from cede.store.json_text import decode, encode
from cede.store.unread import UnreadWork, text_of

Row = tuple[Any, ...]

_OF_AGENT = (
    *("lease", "promised", "folder", "protocol", "beside_server", "session", "machine"),
    *("quarantined", "bridge", "others", "others_why"),
)


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
        encode(tuple(_plain(getattr(node, name)) for name in _OF_AGENT)),
    )


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def node_from(row: Sequence[Any]) -> Node:
    (
        id_, name, pool_id, state, out, reason, amounts, devices, labels, group, fingerprint,
        heartbeat, boot, failures, created, edited, claimed_by, agent,
    ) = row  # fmt: skip
    # Rows of an earlier version end with its last field.
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
    """The shape of a request and its stop policy."""
    shape, stop_policy = request.shape, request.stop_policy
    if shape is None and stop_policy == PLAIN:
        return None
    sits = None if shape is None else array_of(shape)
    return encode((sits, None if stop_policy == PLAIN else array_of(stop_policy)))


@lru_cache(maxsize=4_096)
def task_from(text: str | None) -> tuple[Shape | None, StopPolicy]:
    if text is None:
        return None, PLAIN
    shape, stop_policy = decode(text)
    return (
        None if shape is None else from_array(Shape, shape),
        PLAIN if stop_policy is None else from_array(StopPolicy, stop_policy),
    )


def work_text(work: Work | None) -> str | None:
    return None if work is None else text_of(work) or encode(array_of(work))


def work_from(text: str | None) -> Work | None:
    return None if text is None else UnreadWork(text)


def kept_text(request: Request) -> str | None:
    """The checkpoint of a request, its pin, and the numbers of its lost and left attempts."""
    saved, pin = request.saved, request.pin
    if saved is None and pin is None and not request.lost_count and not request.left_count:
        return None
    kept = {
        "lost": request.lost_count,
        "left": request.left_count,
        "saved": saved and array_of(saved),
        "pin": pin and array_of(pin),
    }
    return encode({name: value for name, value in kept.items() if value})


def kept_from(text: str | None) -> tuple[Saved | None, Pin | None, int, int]:
    """These fields of a request, in their order."""
    if text is None:
        return None, None, 0, 0
    found = decode(text)
    if isinstance(found, list):  # as it was first written: the count, then the checkpoint
        found = {"lost": found[0], "saved": found[1:]}
    pin, saved = found.get("pin"), found.get("saved")
    return (
        from_array(Saved, saved) if saved else None,
        from_array(Pin, pin) if pin else None,
        found.get("left", 0),
        found.get("lost", 0),
    )


def members_text(members: Sequence[Member]) -> str | None:
    return encode(list(map(array_of, members))) if members else None


@lru_cache(maxsize=4_096)
def members_from(text: str | None) -> tuple[Member, ...]:
    return () if text is None else tuple(from_array(Member, each) for each in decode(text))


def hints_text(allocation: Allocation) -> str | None:
    """The ask, the progress and the notice of a holder's stop; of a later attempt also its resume
    point.
    """
    asked, stop_progress = allocation.asked, allocation.stop_progress
    told: dict[str, Any] = {
        "asked": asked and array_of(asked),
        "parting": stop_progress and array_of(stop_progress),
        "announced": allocation.announced,
    }
    told = {name: value for name, value in told.items() if value}
    if allocation.attempt > 1 and allocation.resume is not None:
        told["resume"] = allocation.resume
    return encode(told) if told else None


def hints_from(text: str | None, attempt: int) -> dict[str, Any]:
    """These fields of an allocation. The resume point of a second or later attempt without one is
    not decided yet; so it is in rows of versions that stored none.
    """
    if text is None and attempt == 1:
        return _NEVER_ASKED
    found: Any = {} if text is None else decode(text)
    if isinstance(found, list):  # as it was first written: a stop and nothing else
        found = {"parting": found}
    stop_progress, asked = found.get("parting"), found.get("asked")
    return {
        "stop_progress": from_array(StopProgress, stop_progress) if stop_progress else None,
        "asked": from_array(Ask, asked) if asked else None,
        "announced": found.get("announced", False),
        "resume": found.get("resume", "" if attempt == 1 else None),
    }


_NEVER_ASKED = {"stop_progress": None, "asked": None, "announced": False, "resume": ""}


def _devices(given: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {key: tuple(names) for key, names in given.items()}

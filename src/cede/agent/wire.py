"""The protocol between server and agent, parsed into values. Unknown fields of an answer are
ignored: a newer server sends them for newer agents.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cede import __version__
from cede.agent import detect, folder
from cede.agent.identity import Identity
from cede.agent.settings import Settings
from cede.agent.values import Do, Key, Order, Orders, Report
from cede.model import bounds

PROTOCOL = 3
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogQuestion:
    id: str
    key: Key
    stream: str
    offset: int
    most: int
    tail: int | None = None  # the last lines only
    since: float | None = None  # printed at this time of day or later
    age: float | None = None  # printed so many seconds ago or later


@dataclass(frozen=True, slots=True)
class Answer:
    orders: Orders
    index: int
    heartbeat: float
    logs: tuple[LogQuestion, ...]
    over: frozenset[str]  # of the requests that were asked about: those that have ended
    quarantined: bool = False  # whether the server asks for `strays`
    heard: bool = False  # whether the server stored the facts of the call


def registration(settings: Settings, known: Identity, boot: str) -> Json:
    return {
        "protocol": PROTOCOL,
        "version": __version__,
        "name": settings.name,
        "boot": boot,
        "amounts": dict(settings.amounts),
        "devices": {key: list(names) for key, names in settings.devices.items()},
        "labels": dict(settings.labels),
        "group": settings.group,
        "fingerprint": settings.fingerprint,
        "folder": folder.identity(settings.checkpoints),
        "session": known.next_session or known.session,
        "previous": known.session,
        "machine": detect.machine(settings.data),
    }


def report_json(report_id: str, report: Report) -> Json:
    return {
        "id": report_id,
        "allocation": report.key.allocation,
        "task": report.key.task,
        "attempt": report.attempt,
        "kind": str(report.kind),
        "exit_code": report.exit_code,
        "cause": report.cause,
        "checkpoint": report.checkpoint,
        "size": report.size,
        "hint": report.hint,
        "seconds": report.seconds,
        "text": report.text[: bounds.DESCRIPTION_LENGTH_MAX],
        "ids": list(report.ids),
        "step": report.step,
        "unread": report.unread,
    } | ({"devices": dict(report.devices)} if report.devices else {})


def log_json(
    question: LogQuestion, start: int, data: bytes, *, end: bool = False, gone: bool = False
) -> Json:
    return {
        "id": question.id,
        "offset": start,
        "data": b64encode(data).decode("ascii"),
        "end": end,
        "rotated": start > question.offset,
        "gone": gone,
    }


def no_order_json(question: LogQuestion) -> Json:
    """Return the answer to a question that needs an order which this supervisor did not write."""
    return {"id": question.id, "offset": question.offset, "unordered": True}


def answer(data: Mapping[str, Any], sent_at: float) -> Answer:
    """Parse the answer to a heartbeat that was sent at `sent_at`."""
    orders = Orders(
        epoch=int(data["epoch"]),
        version=int(data["version"]),
        orders=tuple(_order(each) for each in data["orders"]),
        sent_at=sent_at,
        lease=float(data["lease"]),
        acknowledged=frozenset(data.get("acknowledged") or ()),
    )
    logs = tuple(_question(each) for each in data.get("logs") or ())
    over = frozenset(map(str, data.get("over") or ()))
    asked = data.get("quarantined") is True
    index, heartbeat = int(data["index"]), float(data["heartbeat"])
    return Answer(orders, index, heartbeat, logs, over, asked, data.get("heard") is True)


def _order(data: Mapping[str, Any]) -> Order:
    return Order(
        key=Key(str(data["allocation"]), int(data["task"])),
        attempt=int(data["attempt"]),
        request=str(data["request"]),
        do=Do(data["do"]),
        devices=frozenset(
            f"{key}:{name}" for key, names in (data.get("devices") or {}).items() for name in names
        ),
        grace=float(data["grace"]),
        keeps_in_silence=data.get("on_silence") == "keep",
        hint=int(data["hint"]),
        seconds_left=float(data["seconds_left"]),
        keep=str(data.get("keep") or ""),
        looks=data["resume"] is None,
        step=int(data["step"]),
        body=dict(data),
    )


def _question(data: Mapping[str, Any]) -> LogQuestion:
    return LogQuestion(
        str(data["id"]),
        Key(str(data["allocation"]), int(data["task"])),
        str(data["stream"]),
        int(data["offset"]),
        min(int(data["most"]), bounds.LOG_CHUNK_BYTES),
        data.get("tail"),
        data.get("since"),
        data.get("age"),
    )

"""A request as a row: the columns that lists of requests share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cede.cli.lists import Columns
from cede.cli.times import age


def _declared() -> Iterator[str]:
    from cede.model.fields import fields_of
    from cede.model.request import Request
    from cede.model.stopping import StopPolicy
    from cede.model.terms import Terms

    return (each.name for part in (Request, StopPolicy, Terms) for each in fields_of(part))


REQUESTS = Columns(
    ("id", "name", "who", "status", "asks", "pool", "age", "reason"),
    ("node", "attempt", "preempted_count", "class", "tenant", "owner", "walltime", "created"),
    (
        *(
            "state",
            "component",
            "component_type",
            "step_run",
            "tracked",
            "resources",
            "preemptible",
        ),
        *("tasks", "lost_count", "retry", "lease", "submitted_at", "earmark", "place"),
        *("allocation", "allocation_state", "started", "index", "part_of", "array_task"),
        *("parts", "shape"),
        *("command", "work", "saved", "settings"),
    ),
    _declared,
)
_WAITING = ("queued", "suspended")
_HOLDING = ("allocated", "preempting")


def request_row(request: Mapping[str, Any]) -> dict[str, Any]:
    """Add the columns of lists: component, demand, reason and others."""
    allocation = request.get("allocation") or {}
    status = request["status"]
    return {
        **request,
        "id": ref_of(request),
        "name": name_of(request),
        "who": request["component"],
        "asks": asked(request),
        # An ended request is shown in the pool where it was; a waiter only in one that it named.
        "pool": request.get("pool") or (allocation.get("pool") if status not in _WAITING else None),
        "age": age(request.get("created")),
        "state": "active" if status in _HOLDING else "queued" if status in _WAITING else "ended",
        "allocation_state": allocation.get("state"),
        "started": allocation.get("started_at"),
        "node": list(dict.fromkeys(each["node"] for each in allocation.get("members") or ())),
        "step_run": (request.get("labels") or {}).get("step", ""),
        "reason": (request.get("reason") or {}).get("text", ""),
    }


def ref_of(request: Mapping[str, Any]) -> str:
    """Return a request's id; of a task of an array, the array's id and its number."""
    number = request.get("array_task")
    return str(request["id"]) if number is None else f"{request['part_of']}_{number}"


def name_of(request: Mapping[str, Any]) -> str:
    """Return a name for people: the label `name`, else the step, else the program."""
    labels = request.get("labels") or {}
    named = labels.get("name") or labels.get("step")
    if named:
        return str(named)
    words = (request.get("command") or "").split()
    return words[0].rpartition("/")[2] if words else ""


def asked(request: Mapping[str, Any]) -> str:
    """Show the amounts that all tasks ask for; `step_run` only where there is nothing else."""
    amounts = {key: many for key, many in request["resources"].items() if key != "step_run"}
    shown = ", ".join(f"{key} {many}" for key, many in (amounts or request["resources"]).items())
    tasks = request.get("tasks") or 1
    return f"{tasks} x {shown}" if tasks > 1 else shown

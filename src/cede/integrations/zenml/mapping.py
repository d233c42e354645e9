"""Between ZenML's words and cede's: demands, subjects, statuses, outcomes and labels.

Plain values in, plain values out; it knows neither ZenML's classes nor the network, so that every
line of it is tested without either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from cede.model.amounts import parse_memory
from cede.model.errors import Invalid
from cede.model.resources import STEP_RUN

Json = dict[str, Any]

# ZenML's kinds, and the keys under which pools count them.
KINDS = {"gpu": "gpu", "cpu": "mcpu", "memory": "memory_mb"}
_UNITS = {
    "gpu": "GPUs are counted without a unit",
    "cpu": "processors are counted in CPU or mCPU",
    "memory": "memory is counted in B, KB, KiB, MB, MiB and so on to PiB",
}
_MEGABYTE = 10**6

# cede's statuses, and ZenML's words for them. A lease that ran out is `expired` whatever it ended.
STATUSES = {
    "queued": "pending",
    "suspended": "pending",
    "allocated": "allocated",
    "preempting": "preempting",
    "preempted": "preempted",
    "rejected": "rejected",
    "cancelled": "cancelled",
    "released": "released",
    "failed": "released",  # the step failed and gave its units back; ZenML knows why
    "untracked": "no_matching_pool",
}
EXPIRED = "expired"
# The status of an answer without a request behind it, so there is none to list.
UNSTORED = "untracked"
# No pool can ever grant it as pools and policies are.
REJECTED = "rejected"
# Fields that every answer about a request has, and that this plug-in relies on.
FIELDS = frozenset({"id", "status", "created", "resources", "preemptible", "reason", "labels"})

# Labels that identify the asker, so that every replica of a ZenML server finds its own requests
# again; cede keeps the state.
SERVER = "zenml_server"
STEP_RUN_ID = "zenml_step_run"
RUN_ID = "zenml_run"
PROJECT_ID = "zenml_project"
COMPONENT_ID = "zenml_component"
USER_ID = "zenml_user"
TOLERANCE = "zenml_tolerance"
START_WITHIN = "zenml_start_within"
# The request of the try before this one.
REPLACES = "replaces"


class Unsupported(ValueError):
    """A demand that cede has no key for."""


def amounts_of(
    demands: Iterable[Mapping[str, Any]], gpu_count: int | None = None
) -> dict[str, int]:
    """Return the counted amounts: custom keys, overridden by typed kinds of the same name, and one
    step slot.

    ZenML sends both where a step declares `gpu_count` and a custom key `gpu`; the typed one wins,
    also where it is 0, for which ZenML sends no demand.
    """
    typed: dict[str, int] = {}
    named: dict[str, int] = {}
    for demand in demands:
        _refuse_uncounted(demand)
        kind = demand.get("kind")
        if demand.get("resource") is None and kind in KINDS:
            key = KINDS[kind]
            typed[key] = typed.get(key, 0) + _converted(kind, demand)
        else:
            key = _named(demand)
            named[key] = named.get(key, 0) + int(demand["quantity"])
    if gpu_count == 0:
        named.pop("gpu", None)
    return {**named, **typed, STEP_RUN: 1}


def _converted(kind: str, demand: Mapping[str, Any]) -> int:
    quantity, unit = int(demand["quantity"]), demand.get("unit")
    match kind, unit:
        case ("gpu", None) | ("cpu", "mCPU"):
            return quantity
        case ("cpu", None | "CPU"):
            return quantity * 1000
        case ("memory", "B"):
            return -(-quantity // _MEGABYTE)
        case ("memory", str()):
            try:
                return parse_memory(f"{quantity}{unit}")
            except Invalid as error:
                raise Unsupported(f"{error.field}: {error.problem}") from None
    raise Unsupported(f"{quantity} {kind} in the unit {unit}: {_UNITS[kind]}")


def _named(demand: Mapping[str, Any]) -> str:
    key = demand.get("resource") or demand.get("kind")
    if key is None:
        raise Unsupported("a demand without a name; name the key of a pool")
    if demand.get("unit") is not None:
        raise Unsupported(
            f"{key} in the unit {demand['unit']}: keys of pools have none; give a whole number"
        )
    return str(key)


def _refuse_uncounted(demand: Mapping[str, Any]) -> None:
    """Refuse parts of a demand that cede would ignore: half of a demand is another demand."""
    chosen = demand.get("class_name")
    if chosen is not None:
        key = demand.get("resource") or demand.get("kind") or "gpu"
        raise Unsupported(
            f"class {chosen}: cede's pools have keys and no classes; make one a key of its own, "
            f'such as pool_resources={{"{key}_{chosen}": {demand.get("quantity", 1)}}}'
        )
    for field in ("resource_id", "resource_selector", "class_selector"):
        if demand.get(field) is not None:
            raise Unsupported(f"{field}: cede finds keys by name only; name the key of a pool")


def labels_of(names: Mapping[str, object]) -> dict[str, str]:
    """Return the known values as labels for cede, as text."""
    return {name: str(value) for name, value in names.items() if value not in (None, "")}


def status_of(request: Mapping[str, Any]) -> str:
    """Return ZenML's status of a request of cede."""
    if (request.get("reason") or {}).get("code") == "lease_expired":
        return EXPIRED
    return STATUSES[str(request["status"])]


def statuses_for(wanted: str) -> tuple[str, ...]:
    """Return the statuses in cede that requests of one of ZenML's statuses can have."""
    if wanted == EXPIRED:
        return ("failed", "cancelled")
    return tuple(ours for ours, theirs in STATUSES.items() if theirs == wanted and ours != UNSTORED)


def reason_of(request: Mapping[str, Any]) -> str | None:
    """Return one line: the reason, and what would change it."""
    reason = request.get("reason") or {}
    if reason.get("code") == "preempted":
        # cede's sentence is about its own retries; here ZenML has them.
        return (
            f"stopped in pool {reason.get('pool')} for request {reason.get('beneficiary')} "
            f"({reason.get('rule')}); if the step has retries left, ZenML asks again"
        )
    text = str(reason.get("text") or "")
    # "nothing: it starts once … stopped" is no advice, but says what happens next.
    fix = str(reason.get("fix") or "").removeprefix("nothing").removeprefix(": ")
    if not text:
        return None
    return f"{text}; {fix}" if fix else text


def beneficiary_of(request: Mapping[str, Any]) -> str | None:
    """Return the request for which this one was stopped."""
    found = (request.get("reason") or {}).get("beneficiary")
    return str(found) if found else None


def demands_of(request: Mapping[str, Any]) -> list[Json]:
    """Return a request's amounts as demands, for lists."""
    return [
        {"resource": key, "quantity": amount}
        for key, amount in request["resources"].items()
        if key != STEP_RUN
    ]


# The outcomes by which a step's status in ZenML ends its request; the first that cede accepts
# counts. `stopped` is accepted only of a holder that was told to stop, so a victim never counts as
# failed.
_OUTCOMES = {
    "completed": ("done",),
    "failed": ("stopped", "failed"),
    "retrying": ("stopped", "failed"),
}


def outcomes_for(step_status: str) -> tuple[str, ...]:
    return _OUTCOMES.get(step_status, ("stopped", "done"))


def refusal_id(step_run_id: UUID) -> UUID:
    """Return an id for a request that cede never saw: the same for the same step run, and of no
    other request."""
    return uuid5(NAMESPACE_URL, f"urn:cede:zenml:refused:{step_run_id}")


def needs_renewal(request: Mapping[str, Any], step_status: str, seconds_since: float) -> bool:
    """Whether only the upkeep renews a holder: its step starts and has no heartbeat yet, or runs
    inside its pipeline's process and never has one.

    `seconds_since`: how long ago ZenML last updated the step's row.
    """
    allocation = request.get("allocation") or {}
    if request["status"] != "allocated" or step_status != "running":
        return False
    if request.get("on_silence") == "keep":
        return True
    within = float((request.get("labels") or {}).get(START_WITHIN, 0))
    return allocation.get("state") in ("granted", "starting") and seconds_since < within

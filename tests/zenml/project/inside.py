"""What needs ZenML's classes, but no server of its own. Run by ZenML's Python, which has no pytest;
each function that begins with `check` is a promise."""

from __future__ import annotations

import subprocess
import sys
import traceback
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

from zenml.enums import ResourceRequestRuntimeState, ResourceRequestStatus
from zenml.models import ResourceRequestFilter, ResourceRequestRequest

from cede.client.errors import ServerUnreachable
from cede.integrations.zenml import answers, listing, one_machine
from cede.integrations.zenml.store import ResourcePoolStore
from cede.integrations.zenml.told import Told

RED, BLUE = UUID(int=1), UUID(int=2)


def request(**fields: Any) -> dict[str, Any]:
    """As cede answers."""
    labels = {
        "zenml_user": str(RED),
        "zenml_step_run": str(uuid4()),
        "zenml_tolerance": "any",
        "step": "train",
        "run": "night-run",
    }
    usual = {
        "id": str(uuid4()),
        "component": "red",
        "status": "queued",
        "pool": "gpus",
        "created": "2026-01-02T00:00:00Z",
        "resources": {"gpu": 1, "step_run": 1},
        "preemptible": True,
        "reason": None,
        "labels": labels | fields.pop("labels", {}),
    }
    return usual | fields


def found(wanted: dict[str, Any], one: dict[str, Any], users: set[UUID] | None = None) -> bool:
    return listing.matches(one, answers.answer(one), ResourceRequestFilter(**wanted), users)


def check_that_no_filter_is_passed_over() -> None:
    one = request(id="01a1e449-e6af-7000-9321-e15aaf270fae")
    for wanted, expected in (
        ({}, True),
        ({"status": "pending"}, True),
        ({"status": "allocated"}, False),
        ({"status": 'oneof:["pending", "allocated"]'}, True),
        ({"status": "notequals:pending"}, False),
        ({"id": "startswith:01a1e449-e6"}, True),
        ({"id": one["id"]}, True),
        ({"id": uuid4()}, False),
        ({"created": "gt:2026-01-01 00:00:00"}, True),
        ({"created": "gt:2026-01-03 00:00:00"}, False),
        ({"created": "in:2026-01-01 00:00:00,2026-01-03 00:00:00"}, True),
        ({"pipeline_run_id": "night-run"}, True),
        ({"pipeline_run_id": "other-run"}, False),
        ({"step_run_id": "train"}, True),
        ({"component_id": "contains:re"}, True),
        ({"component_id": "blue"}, False),
        ({"preemption_initiated_by_id": "isnull:"}, True),
        ({"reclaim_tolerance": "none"}, False),
        ({"status": "allocated", "component_id": "red"}, False),
        ({"status": "allocated", "component_id": "red", "logical_operator": "or"}, True),
    ):
        assert found(wanted, one) is expected, wanted
    assert found({}, one, users={RED, BLUE}) and not found({}, one, users={BLUE})


def check_that_cede_is_asked_for_too_much_rather_than_too_little() -> None:
    exact = ResourceRequestFilter(status="released", component_id=RED, pool_id="gpus")
    assert listing.narrowed(exact, "here") == {
        "label.zenml_server": "here",
        "label.zenml_component": str(RED),
        "status": ["released", "failed"],
        "pool": "gpus",
    }
    for vague in (
        {"status": "contains:e", "component_id": "red", "pool_id": "startswith:g"},
        {"status": "released", "component_id": RED, "logical_operator": "or"},
    ):
        narrowed = listing.narrowed(ResourceRequestFilter(**vague), "here")
        assert narrowed == {"label.zenml_server": "here"}, vague


def check_that_lists_are_in_the_order_that_was_asked_for() -> None:
    days = ("2026-01-02", "2026-01-01", "2026-01-03")
    states = ("queued", "released", "allocated")
    shown = [
        answers.answer(request(created=f"{day}T00:00:00Z", status=state))
        for day, state in zip(days, states, strict=True)
    ]
    for order, column, expected in (
        ("desc:created", "created", sorted(days, reverse=True)),
        ("created", "created", sorted(days)),
        ("asc:status", "status", ["allocated", "pending", "released"]),
    ):
        sorted_ = listing.in_order(shown, ResourceRequestFilter(sort_by=order))
        values = [str(getattr(each.get_body(), column)).split()[0] for each in sorted_]
        assert values == expected, order


def check_that_a_step_whose_component_was_deleted_is_refused() -> None:
    """An error would leave it in ZenML's table as if it were starting, for ever."""
    store = ResourcePoolStore.__new__(ResourcePoolStore)
    session = SimpleNamespace(get_one=lambda *_: SimpleNamespace(), get=lambda *_: None)
    asked = ResourceRequestRequest(
        component_ids=[uuid4()], step_run_id=uuid4(), demands=[{"kind": "gpu", "quantity": 1}]
    )
    store._server_id = "here"
    made = store.create_resource_request(session, asked)
    assert made.status is ResourceRequestStatus.REJECTED
    assert "component was deleted" in str(made.status_reason)


def check_that_a_step_outlives_the_absence_of_its_zenml_server() -> None:
    """ZenML takes an error here for the end of the step, and has it killed."""

    def away(*_: object, **__: object) -> None:
        raise ConnectionError("the ZenML server is being restarted")

    one_machine.Client = lambda: SimpleNamespace(get_run_step=away)
    step = SimpleNamespace(id=uuid4())
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    one_machine._children.add(step.id, child)
    orchestrator = one_machine.OneMachineOrchestrator.__new__(one_machine.OneMachineOrchestrator)
    assert orchestrator.get_isolated_step_status(step).value == "running"
    child.communicate(b"\n", timeout=60)
    assert orchestrator.wait_for_isolated_step(step).value == "completed"


def check_that_a_waiter_hears_that_its_run_is_being_stopped() -> None:
    """Its launcher polls and does nothing else; a poll is the only place to tell it."""
    stopped = request(status="cancelled") | {"reason": {"text": "its run is being stopped"}}
    store = ResourcePoolStore.__new__(ResourcePoolStore)
    store._own = SimpleNamespace(check=lambda _: None)
    store._line = SimpleNamespace(renew=lambda *_, **__: request(), server="http://cede")
    store._upkeep = SimpleNamespace(tended=lambda waiter: stopped)
    store._told = Told()
    renewal = SimpleNamespace(
        runtime_state=ResourceRequestRuntimeState.PENDING, lease_expires_at=None
    )
    told = store.renew_resource_request(uuid4(), renewal)
    assert told.status is ResourceRequestStatus.CANCELLED
    assert told.status_reason == "its run is being stopped"

    def away(_: object) -> None:
        raise ServerUnreachable("no answer")

    store._upkeep.tended = away
    assert store.renew_resource_request(uuid4(), renewal).status.value == "pending"


if __name__ == "__main__":
    broken = 0
    for name, check in [each for each in globals().items() if each[0].startswith("check_")]:
        try:
            check()
        except Exception:
            broken += 1
            print(f"{name}\n{traceback.format_exc()}", file=sys.stderr)
    sys.exit(broken)

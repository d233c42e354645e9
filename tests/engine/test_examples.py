"""The twenty examples of document 001, decided by the engine."""

from __future__ import annotations

import pytest

from cede.engine.admin import edits
from cede.engine.audit import audit
from cede.engine.decide import decide
from cede.engine.explain.why import why
from cede.engine.lifecycle import commands
from cede.engine.state.state import State
from cede.model.reason import Code
from cede.model.request import Request
from cede.model.resources import ResourceSettings
from cede.model.subject import Subject
from tests.examples import EXAMPLES, Example, Step


class Told:
    """An engine with an example's pools and policies."""

    def __init__(self, example: Example) -> None:
        self.state = State()
        self.ended: dict[str, Request] = {}
        for name, capacity in example.pools.items():
            edits.create_pool(self.state, id=name, name=name, capacity=capacity)
        for policy in example.policies:
            given = {key: policy[key] for key in ("priority", "reserved", "limit")}
            subject = Subject.of(policy["component"], policy["component_type"])
            pool = policy["pool"]
            edits.attach_policy(
                self.state, id=f"{pool}/{subject}", pool_id=pool, subject=subject, **given
            )

    def submit(self, step: Step) -> Request:
        settings = ResourceSettings(**step.settings)
        subject = Subject.of(step.component, step.component_type)
        commands.submit(
            self.state,
            commands.Submission(
                id=step.id,
                subject=subject,
                amounts=settings.amounts,
                preemptible=settings.preemptible,
            ),
            0,
        )
        return self.settle(step.id)

    def settle(self, request_id: str) -> Request:
        decide(self.state, 0)
        changes = self.state.drain()
        for request in (*changes.requests.inserted, *changes.requests.updated):
            self.ended[request.id] = request
        assert audit.check(self.state) == []
        return self.ended[request_id]

    def pool_of(self, request_id: str) -> str | None:
        allocation = self.state.allocation_of(request_id)
        return allocation and allocation.pool_id


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.name)
def test_the_example_comes_out_as_documented(example: Example) -> None:
    told = Told(example)
    for step, status in example.prelude:
        assert told.submit(step).status == status, step
    request = told.submit(example.step)
    expected = example.expected
    assert dict(request.amounts) == example.resources
    if expected.status == "preempts":
        assert request.earmark is not None
        stopping = {each.request_id for each in told.state.allocations.values() if each.leaving}
        assert stopping == set(expected.victims)
        for victim in expected.victims:
            commands.release(told.state, victim, 0, outcome="stopped")
        request = told.settle(request.id)
    assert request.status == ("allocated" if expected.status == "preempts" else expected.status)
    assert told.pool_of(request.id) == expected.pool
    if expected.in_share is not None:
        assert expected.pool is not None
        rights = told.state.ledgers[expected.pool].rights(f"{request.id}.1")
        assert bool(rights) == expected.in_share
    if expected.reason is not None:
        waiting = request.waiting and why(told.state, request.id, 0)["reason"]
        reason = waiting or (request.reason and request.reason.to_dict())
        assert (reason["code"], reason["key"]) == (expected.reason, expected.key)


def test_all_twenty_are_here() -> None:
    assert sorted(each.number for each in EXAMPLES) == [*range(1, 21), 119]


def test_example_10_starts_the_fifth_step_when_a_slot_is_free() -> None:
    example = next(each for each in EXAMPLES if each.number == 10)
    told = Told(example)
    for step, _ in example.prelude:
        told.submit(step)
    assert told.submit(example.step).status == "queued"
    commands.release(told.state, "train-2", 0)
    assert told.settle("fifth").status == "allocated"


def test_example_12_is_allocated_when_the_step_may_be_preempted() -> None:
    example = next(each for each in EXAMPLES if each.number == 12)
    step = example.step
    borrows = Step(step.id, step.component, {**step.settings, "preemptible": True}, "step_operator")
    assert Told(example).submit(borrows).status == "allocated"


def test_example_15_prefers_the_team_that_is_inside_its_reserve() -> None:
    told = Told(next(each for each in EXAMPLES if each.number == 15))

    def train(id_: str, team: str) -> Request:
        return told.submit(Step(id_, f"{team}-orch", {"gpu_count": 2}))

    for number in range(1, 5):
        assert train(f"red-{number}", "red").status == "allocated"
    assert train("red-5", "red").status == "queued"
    assert train("blue-1", "blue").earmark is not None  # it takes red-4 back, which was borrowed
    commands.release(told.state, "red-1", 0)
    assert told.settle("blue-1").status == "allocated"
    assert told.state.requests["red-5"].status == "queued"


def test_example_17_leaves_the_sandbox_alone() -> None:
    example = next(each for each in EXAMPLES if each.number == 17)
    told = Told(example)
    for step, _ in example.prelude:
        told.submit(step)
    told.submit(example.step)
    assert not any(each.leaving for each in told.state.allocations.values())


def test_example_18_falls_back_when_the_primary_is_full() -> None:
    told = Told(next(each for each in EXAMPLES if each.number == 18))
    told.submit(Step("full", "regional-orch", {"gpu_count": 16}))
    told.submit(Step("next", "regional-orch", {"gpu_count": 1}))
    assert told.pool_of("next") == "eu-north-gpu"


def test_example_20_names_every_bound_of_the_metered_pool() -> None:
    example = next(each for each in EXAMPLES if each.number == 20)
    told = Told(example)
    edits.detach_policy(told.state, "gpu-only-fallback/orchestrator:k8s-orch")
    request = told.submit(example.step)
    assert request.status == "rejected"
    assert request.reason is not None and request.reason.code is Code.NO_ELIGIBLE_POOL
    assert [each["key"] for each in request.reason.detail["pools"]] == ["mcpu", "memory_mb"]

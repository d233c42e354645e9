"""The twenty examples of document 001 over HTTP, on the command line and in Python."""

from __future__ import annotations

import pytest

from tests.examples import EXAMPLES, Example, Step
from tests.levels.level import Json, Level

pytestmark = pytest.mark.system


def prepare(level: Level, example: Example) -> None:
    for name, capacity in example.pools.items():
        level.create_pool(name, capacity)
    for policy in example.policies:
        rule = {key: policy[key] for key in ("priority", "reserved", "limit")}
        level.attach_policy(policy["pool"], policy["component"], policy["component_type"], rule)


def submit(level: Level, step: Step) -> Json:
    return level.submit(step.id, step.component, step.component_type, step.settings)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.name)
def test_the_example_comes_out_as_documented(level: Level, example: Example) -> None:
    prepare(level, example)
    for step, status in example.prelude:
        assert submit(level, step)["status"] == status, step
    request = submit(level, example.step)
    expected = example.expected
    assert request["resources"] == example.resources
    if expected.status == "preempts":
        request = give_way(level, request, expected.victims)
    assert request["status"] == ("allocated" if expected.status == "preempts" else expected.status)
    assert level.plain(request["pool"]) == expected.pool
    if expected.in_share is not None:
        assert expected.pool is not None
        assert borrows(level, expected.pool, example) != expected.in_share
    if expected.reason is not None:
        reason = level.reason(request["id"])
        assert (reason["code"], reason["key"]) == (expected.reason, expected.key)
        assert reason["text"] and reason["fix"]


def give_way(level: Level, request: Json, victims: tuple[str, ...]) -> Json:
    """The victims and nobody else are asked to stop; they stop, and the request runs."""
    assert request["earmark"] is not None
    stopping = [each for each in level.requests() if each["status"] == "preempting"]
    assert {each["labels"]["name"] for each in stopping} == set(victims)
    for each in stopping:
        level.end(each["id"], "stopped")
    (found,) = [each for each in level.requests() if each["id"] == request["id"]]
    return found


def borrows(level: Level, pool: str, example: Example) -> bool:
    """Whether the step's component holds more than is reserved for it."""
    (policy,) = [
        each
        for each in level.policies(pool)
        if level.plain(each["component"]) == example.step.component
    ]
    return any(policy["borrowed"].get(key) for key in example.pools[pool])

"""A dry run of an edit names whom it stops, pauses and starts, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from cede.engine.admin import edits
from cede.engine.decide import decide
from cede.engine.state.state import State
from cede.model.errors import Invalid
from cede.sim.preview import preview
from cede.snapshot.reader import load
from cede.snapshot.writer import dump

SNAPSHOT: dict[str, Any] = {
    "pools": [{"name": "gpus", "capacity": {"gpu": 8}}],
    "policies": [
        {"pool": "gpus", "component": "red", "component_type": "team", "limit": {"gpu": 8}},
        {"pool": "gpus", "component": "blue", "component_type": "team", "limit": {"gpu": 8}},
    ],
    "requests": [
        {"id": "r1", "component": "red", "component_type": "team", "resources": {"gpu": 6}},
        {"id": "r2", "component": "red", "component_type": "team", "resources": {"gpu": 6}},
        {"id": "b1", "component": "blue", "component_type": "team", "resources": {"gpu": 4}},
    ],
}


@pytest.fixture
def state() -> State:
    """r1 holds 6 of 8, and r2 and b1 wait."""
    made = load(SNAPSHOT)
    decide(made, made.now)
    return made


def policy(state: State, name: str) -> str:
    return next(each.id for each in state.policies.values() if each.name == name)


def test_who_would_be_stopped_for_whom(state: State) -> None:
    before = dump(state, state.now)
    blue = policy(state, "blue")
    found = preview(state, state.now, lambda: edits.update_policy(state, blue, reserved={"gpu": 4}))
    assert found["counts"] == {"stops": 1, "pauses": 0, "starts": 1}
    (stopped,), (started,) = found["stops"], found["starts"]
    assert (stopped["request"], stopped["for"]) == ("r1", "b1")
    assert stopped["reason"]["code"] == "reclaim"
    assert started["request"] == "b1"
    assert dump(state, state.now) == before


def test_who_would_be_paused(state: State) -> None:
    red = policy(state, "red")
    found = preview(state, state.now, lambda: edits.update_policy(state, red, limit={"gpu": 4}))
    assert [each["request"] for each in found["pauses"]] == ["r2"]
    assert "exceeds the limit 4 of red" in found["pauses"][0]["reason"]["text"]
    assert found["stops"] == []  # over_limit: drain


def test_work_above_a_lowered_limit_is_named_at_once_whatever_its_grace(state: State) -> None:
    pool = next(iter(state.pools.values()))
    edits.update_pool(state, pool.id, settings={"over_limit": "preempt", "over_limit_grace": 900})
    found = preview(state, state.now, lambda: edits.update_pool(state, pool.id, settings={}))
    assert found["counts"] == {"stops": 0, "pauses": 0, "starts": 0}
    red = policy(state, "red")
    found = preview(state, state.now, lambda: edits.update_policy(state, red, limit={"gpu": 4}))
    assert [each["request"] for each in found["stops"]] == ["r1"]
    assert found["stops"][0]["reason"]["code"] == "over_limit"
    # r1 is stopped first; that it then waits for the limit is no second thing to say of it.
    assert [each["request"] for each in found["pauses"]] == ["r2"]
    assert [each["request"] for each in found["starts"]] == ["b1"]


def test_an_edit_that_is_not_allowed_says_so(state: State) -> None:
    red = policy(state, "red")
    with pytest.raises(Invalid, match="exceeds the pool's capacity"):
        preview(state, state.now, lambda: edits.update_policy(state, red, limit={"gpu": 9}))
    assert state.policies[red].limit == {"gpu": 8}

"""What operators may do: every rule, and the field or the code each refusal names.

The stories in scenarios/edits show what edits do to work; these are the edges of what is accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cede.engine.admin import edits, fleet
from cede.engine.audit import audit
from cede.engine.state.state import State
from cede.model.errors import CedeError, Conflict, Invalid, NotFound
from cede.model.subject import Subject

RED, BLUE = Subject("team", "red"), Subject("team", "blue")
Act = Callable[[State], Any]


@pytest.fixture
def state() -> State:
    state = State()
    edits.create_pool(state, id="p", name="gpus", capacity={"gpu": 8, "mcpu": 1000})
    edits.attach_policy(
        state, id="red", pool_id="p", subject=RED, reserved={"gpu": 4}, limit={"gpu": 6}
    )
    state.drain()
    return state


def create(**given: Any) -> Act:
    return lambda state: edits.create_pool(
        state, **{"id": "q", "name": "q", "capacity": {"gpu": 1}, **given}
    )


def update(**given: Any) -> Act:
    return lambda state: edits.update_pool(state, "p", **given)


def attach(**given: Any) -> Act:
    return lambda state: edits.attach_policy(
        state, **{"id": "blue", "pool_id": "p", "subject": BLUE, **given}
    )


def change(**given: Any) -> Act:
    return lambda state: edits.update_policy(state, "red", **given)


INVALID: dict[str, tuple[Act, str]] = {
    "a pool without capacity": (create(capacity={}), "capacity"),
    "a pool with a zero": (create(capacity={"gpu": 0}), "capacity.gpu"),
    "a pool with a bad name": (create(name="a/b"), "name"),
    "a pool of another preset": (create(preset="magic"), "preset"),
    "a pool with odd settings": (create(settings={"grace": -1}), "settings.grace"),
    "a long description": (create(description="x" * 2001), "description"),
    "a description that is none": (create(description=5), "description"),
    "an update to a negative": (update(capacity={"gpu": -1}), "capacity.gpu"),
    "an update to nothing at all": (update(capacity=[]), "capacity"),
    "an update of settings in words": (update(settings={"min_run": "soon"}), "settings.min_run"),
    "a priority below zero": (attach(priority=-1), "priority"),
    "a priority beyond its range": (attach(priority=1_000_001), "priority"),
    "a fraction of a priority": (attach(priority=1.0), "priority"),
    "a boolean priority": (attach(priority=True), "priority"),
    "a reserve in words": (attach(reserved={"gpu": "4"}), "reserved.gpu"),
    "a reserve of a key the pool lacks": (attach(reserved={"tpu": 0}), "reserved.tpu"),
    "a limit of a key the pool lacks": (attach(limit={"tpu": 0}), "limit.tpu"),
    "a reserve above the capacity": (attach(reserved={"gpu": 9}), "reserved.gpu"),
    "a limit above the capacity": (attach(limit={"gpu": 9}), "limit.gpu"),
    "a reserve above its limit": (attach(reserved={"gpu": 3}, limit={"gpu": 2}), "reserved.gpu"),
    "reserves above the capacity together": (attach(reserved={"gpu": 5}), "reserved.gpu"),
    "a policy with a bad name": (attach(name="\n"), "name"),
    "a lowered limit below the reserve": (change(limit={"gpu": 3}), "reserved.gpu"),
    "a raised reserve above the limit": (change(reserved={"gpu": 7}), "reserved.gpu"),
}
CONFLICTS: dict[str, tuple[Act, str]] = {
    "a name that is taken": (create(name="gpus"), "name_taken"),
    "a second policy of one subject": (attach(subject=RED), "policy_exists"),
    "a capacity below a limit": (update(capacity={"gpu": 5}), "policy_would_break"),
    "a capacity without a policy's key": (update(capacity={"gpu": 0}), "policy_would_break"),
}
MISSING: dict[str, Act] = {
    "update of no pool": lambda state: edits.update_pool(state, "x"),
    "deletion of no pool": lambda state: edits.delete_pool(state, "x"),
    "a policy in no pool": attach(pool_id="x"),
    "update of no policy": lambda state: edits.update_policy(state, "x"),
    "detaching of no policy": lambda state: edits.detach_policy(state, "x"),
}


def _refused(state: State, act: Act) -> CedeError:
    """Refused as a writer does it: undone, and without a trace."""
    mark, before = state.mark(), (dict(state.pools), dict(state.policies), state.index)
    with pytest.raises(CedeError) as caught:
        act(state)
    state.undo(mark)
    assert (state.pools, state.policies, state.index) == before
    assert audit.check(state) == []
    return caught.value


@pytest.mark.parametrize(("act", "field"), INVALID.values(), ids=INVALID)
def test_what_can_never_be_right_names_its_field(state: State, act: Act, field: str) -> None:
    error = _refused(state, act)
    assert isinstance(error, Invalid) and error.field == field, error


@pytest.mark.parametrize(("act", "code"), CONFLICTS.values(), ids=CONFLICTS)
def test_what_cannot_be_now_names_its_conflict(state: State, act: Act, code: str) -> None:
    error = _refused(state, act)
    assert isinstance(error, Conflict) and error.code == code, error


@pytest.mark.parametrize(("capacity", "left"), [(5, "only 5"), (0, "no such key")])
def test_who_would_be_broken_is_told_by_what_is_left(
    state: State, capacity: int, left: str
) -> None:
    said = str(_refused(state, update(capacity={"gpu": capacity})))
    assert f"pool gpus would have {left}; change that policy first" in said


@pytest.mark.parametrize("act", MISSING.values(), ids=MISSING)
def test_what_is_not_there_is_not_found(state: State, act: Act) -> None:
    assert isinstance(_refused(state, act), NotFound)


def test_bounds_are_met_exactly(state: State) -> None:
    attach(reserved={"gpu": 4}, limit={"gpu": 8}, priority=1_000_000)(state)
    change(reserved={"gpu": 4}, limit={"gpu": 4})(state)
    update(capacity={"gpu": 8})(state)
    assert audit.check(state) == []


def test_a_given_map_replaces_and_an_omitted_one_stays(state: State) -> None:
    change(reserved={"mcpu": 10})(state)
    assert (state.policies["red"].reserved, state.policies["red"].limit) == (
        {"mcpu": 10},
        {"gpu": 6},
    )
    change(limit={})(state)
    assert state.policies["red"].limit == {}


def test_capacity_merges_and_zero_removes(state: State) -> None:
    update(capacity={"mcpu": 0, "tpu": 2})(state)
    assert state.pools["p"].capacity == {"gpu": 8, "tpu": 2}


def test_settings_merge_over_what_was_set(state: State) -> None:
    update(settings={"grace": 7})(state)
    update(settings={"min_run": 3})(state)
    assert (state.pools["p"].settings.grace, state.pools["p"].settings.min_run) == (7000, 3000)


def test_a_deleted_pool_takes_its_policies_with_it(state: State) -> None:
    edits.delete_pool(state, "p")
    changes = state.drain()
    assert (changes.pools.deleted, changes.policies.deleted) == (["p"], ["red"])
    assert not state.policies


def test_what_a_policy_reserves_is_of_nodes_that_have_joined(state: State) -> None:
    """Without amounts a policy comes first, as one writes things down; the refusal says so."""
    edits.create_pool(state, id="n", name="farm", nodes={"zone": "a", "rack": "7"})
    with pytest.raises(Invalid) as refused:
        attach(pool_id="n", reserved={"gpu": 4})(state)
    assert refused.value.field == "reserved.gpu"
    assert "no node has joined pool farm yet" in refused.value.problem
    assert "cede agent --label zone=a --label rack=7 …" in refused.value.problem
    then = "cede policy update farm blue --component-type team --reserved …"
    assert refused.value.problem.endswith(then)
    attach(pool_id="n")(state)
    fleet.register(
        state, id="n1", name="n1", amounts={"gpu": 4}, labels={"zone": "a", "rack": "7"}, now=0
    )
    edits.update_policy(state, "blue", reserved={"gpu": 4})
    with pytest.raises(Invalid, match="capacity 4, which is what its nodes have so far"):
        edits.update_policy(state, "blue", limit={"gpu": 8})
    assert audit.check(state) == []

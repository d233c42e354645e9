"""Terms, what policies say, and requests of several tasks, as a snapshot has them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cede.engine.audit import audit
from cede.engine.state.state import State
from cede.model.policy import Home, Kind, Mode
from cede.model.stopping import Saved
from cede.model.subject import Subject
from cede.model.terms import Terms
from cede.sim import plan
from cede.snapshot.reader import SnapshotError, load
from cede.snapshot.writer import dump

SAID: dict[str, Any] = {
    "settings": {"fair_share_starvation_timeout": 60, "enable_aggressive_starvation": True},
    "integral": {
        "guarantee_type": "relaxed",
        "resource_flow": {"gpu": 1},
        "relaxed_share_multiplier_limit": 2.5,
        "can_accept_free_volume": False,
        "should_distribute_free_volume_among_children": True,
    },
    "type": "service",
    "max_class": 10,
    "allow_sensitive": True,
    "home": {"rack": "r1"},
    "allow_lending": False,
    "allow_borrowing": False,
    "max_borrow_pct": 0.5,
    "return_grace": 1.5,
    "weight": 2.5,
    "mode": "fifo",
}
TERMS: dict[str, Any] = {
    "class": 7,
    "sensitive": True,
    "tenant": "bio",
    "limit": {"gpu": 4, "mcpu": 0},
    "weight": 2.5,
    "settings": {"fair_share_starvation_timeout": 90.5},
}


def snapshot(**parts: Any) -> dict[str, Any]:
    return {
        "now": 100,
        "pools": [{"name": "p", "capacity": {"gpu": 8}}],
        "policies": [
            {"pool": "p", "component": "red", "component_type": "team", **SAID},
            {"pool": "p", "name": "blue"},
        ],
        **parts,
    }


def holder(id: str | None = None, **given: Any) -> dict[str, Any]:
    named = {} if id is None else {"id": id}
    return {**named, "pool": "p", "resources": {"gpu": 1}, **given}


def read(**parts: Any) -> State:
    state = load(json.loads(json.dumps(snapshot(**parts))))
    assert audit.check(state) == []
    return state


def test_everything_that_is_said_comes_back() -> None:
    state = read(
        running=[holder("r", policy="red", **TERMS)],
        requests=[{"id": "w", "policy": "red", "resources": {"gpu": 1}, **TERMS}],
    )
    policy = state.policies["p/team:red"]
    assert (policy.kind, policy.mode, policy.weight) == (Kind.SERVICE, Mode.FIFO, 2.5)
    assert (policy.home, policy.return_grace) == (Home({"rack": "r1"}), 1_500)
    patient = {"fair_share_starvation_timeout": 90_500}
    terms = Terms(7, True, "bio", {"gpu": 4, "mcpu": 0}, patient, 2.5)
    assert [state.requests[each].terms for each in ("r", "w")] == [terms, terms]
    shown = dump(state, state.now)
    told = next(each for each in shown["policies"] if each["component"] == "red")
    assert {name: told[name] for name in SAID} == SAID
    for each in (*shown["running"], *shown["requests"]):
        assert {name: each[name] for name in TERMS} == TERMS
    again = load(json.loads(json.dumps(shown)))
    assert dump(again, again.now) == shown
    assert again.policies == state.policies


def test_what_is_usual_is_left_out() -> None:
    state = read(requests=[{"id": "w", "policy": "blue", "resources": {"gpu": 1}}])
    shown = dump(state, state.now)
    told = next(each for each in shown["policies"] if each["component"] == "blue")
    assert set(told) & set(SAID) == set()
    assert set(shown["requests"][0]) & set(TERMS) == set()


def test_a_home_may_be_names() -> None:
    said = [{"pool": "p", "name": "red", "home": ["n1", "n2"]}]
    state = load(snapshot(policies=said))
    assert state.policies["p/orchestrator:red"].home == Home(names=("n1", "n2"))
    assert dump(state, 0)["policies"][0]["home"] == ["n1", "n2"]


def test_own_settings_stand_beside_what_a_step_declares() -> None:
    settings = {"gpu_count": 2, "fair_share_starvation_tolerance": 0.5}
    state = read(requests=[{"id": "w", "policy": "blue", "settings": settings}])
    assert state.requests["w"].amounts == {"gpu": 2, "step_run": 1}
    assert state.requests["w"].terms.settings == {"fair_share_starvation_tolerance": 0.5}


# Policies ---------------------------------------------------------------------------------------


def test_parents_may_be_written_after_those_below_them() -> None:
    policies = [
        {"pool": "p", "name": "leaf", "parent": "twig"},
        {"pool": "p", "name": "twig", "parent": "team:root"},
        {"pool": "p", "component": "root", "component_type": "team"},
    ]
    state = load(snapshot(policies=policies))
    above = {each.name: each.parent_id for each in state.policies.values()}
    assert above == {"leaf": "p/orchestrator:twig", "twig": "p/team:root", "root": None}


def test_a_request_names_its_policy_instead_of_a_component() -> None:
    state = read(requests=[{"id": "w", "policy": "red", "resources": {"gpu": 1}}])
    assert state.requests["w"].subject == Subject("team", "red")


# Requests of several tasks ----------------------------------------------------------------------


def test_tasks_that_are_wanted_and_held_are_one_task_group() -> None:
    state = read(
        running=[holder("a1", request="op"), holder("a2", request="op", started_at=50)],
        requests=[
            {
                "id": "op",
                "policy": "red",
                "tasks": 3,
                "gang": False,
                "resources": {"gpu": 2},
                "submitted_at": 40,
                **TERMS,
            }
        ],
    )
    task_group = {each.id: each for each in state.requests.values()}
    assert list(task_group) == ["a1", "a2", "op", "op#2", "op#3"]
    assert {each.part_of for each in task_group.values()} == {"op"}
    assert {each.subject.name for each in task_group.values()} == {"red"}
    assert {each.terms.preemption_class for each in task_group.values()} == {7}
    assert {each.submitted_at for each in task_group.values()} == {40_000}
    assert [each.amounts["gpu"] for each in task_group.values()] == [1, 1, 2, 2, 2]
    assert {each.shape for each in task_group.values()} == {None}
    held = state.allocations["a2.1"]
    assert (held.started_at, held.allocated_at) == (50_000, 50_000)
    shown = dump(state, state.now)
    assert dump(load(shown), state.now) == shown


def test_what_is_held_needs_only_its_place() -> None:
    state = read(
        running=[{"request": "op", "pool": "p"}] * 2,
        requests=[{"id": "op", "policy": "red", "tasks": 2, "resources": {"gpu": 2}}],
    )
    assert list(state.requests) == ["op#2", "op#3", "op", "op#4"]
    assert state.ledgers["p"].live == {"gpu": 4}


def test_holders_of_one_request_are_a_task_group_without_anything_wanted() -> None:
    first = holder(request="op", policy="red", **{"class": 6})
    state = read(running=[first, holder(request="op"), holder("own", request="op")])
    assert {each.id: each.part_of for each in state.requests.values()} == dict.fromkeys(
        ("op", "op#2", "own"), "op"
    )
    assert {each.terms.preemption_class for each in state.requests.values()} == {6}


def test_one_holder_of_one_request_is_that_request() -> None:
    state = read(running=[holder("held", request="op", policy="red")])
    assert state.requests["op"].part_of is None


def test_a_gang_stays_one_request() -> None:
    gang = {"id": "g", "policy": "red", "tasks": 2, "resources": {"gpu": 2}}
    for given in ({}, {"gang": True}):
        state = read(requests=[{**gang, **given}])
        assert state.requests["g"].amounts == {"gpu": 4} and list(state.requests) == ["g"]
    one = read(requests=[{**gang, "tasks": 1, "gang": False}])
    assert one.requests["g"].part_of is None


def test_a_plan_calls_tasks_by_their_own_names() -> None:
    made = plan.run(
        snapshot(
            policies=[
                {"pool": "p", "name": "red"},
                {"pool": "p", "name": "blue", "reserved": {"gpu": 8}},
            ],
            running=[holder(f"a{n}", request="op", policy="red") for n in range(1, 9)],
            requests=[
                {"id": "op", "policy": "red", "tasks": 2, "resources": {"gpu": 1}},
                {"id": "b", "policy": "blue", "resources": {"gpu": 1}},
            ],
        )
    )
    decisions = made["passes"][0]["decisions"]
    assert [each["victims"] for each in decisions if each["do"] == "preempt"] == [["a8"]]
    assert [each["request"] for each in decisions if each["do"] == "wait"] == ["op", "op#2", "b"]


def test_the_last_checkpoint_may_be_an_instant() -> None:
    state = read(running=[holder("r", policy="red", checkpoint="auto", last_checkpoint_at=90)])
    assert state.requests["r"].saved == Saved("checkpoint", 90_000, 0, index=2)


# What contradicts itself ------------------------------------------------------------------------

OP = {"id": "op", "policy": "red", "tasks": 2, "gang": False, "resources": {"gpu": 1}}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a class in words": ({"requests": [{**OP, "class": "5"}]}, "requests[0].class"),
    "a class of a holder": (
        {"running": [holder("r", policy="red", **{"class": 11})]},
        "running[0].class",
    ),
    "a limit of a half": ({"requests": [{**OP, "limit": {"gpu": 0.5}}]}, "requests[0].limit.gpu"),
    "a setting it may not have": (
        {"requests": [{**OP, "settings": {"gang_steps": True}, "resources": {"gpu": 1}}]},
        "requests[0].settings.gang_steps",
    ),
    "a policy nobody has": ({"requests": [{**OP, "policy": "green"}]}, "requests[0].policy"),
    "a policy of another component": (
        {"requests": [{**OP, "component": "blue"}]},
        "requests[0].component",
    ),
    "gang in words": ({"requests": [{**OP, "gang": "no"}]}, "requests[0].gang"),
    "a gang of which a part runs": (
        {"running": [holder(request="op")], "requests": [{**OP, "gang": True}]},
        "requests[0].gang",
    ),
    "no tasks": ({"requests": [{**OP, "tasks": 0}]}, "requests[0].tasks"),
    "an earmark for several": (
        {"requests": [{**OP, "earmark": {"pool": "p"}}]},
        "requests[0].earmark",
    ),
    "a holder of another class": (
        {"running": [holder(request="op", **{"class": 3})], "requests": [{**OP, "class": 4}]},
        "running[0].class",
    ),
    "a holder of another policy": (
        {"running": [holder(request="op", policy="blue")], "requests": [OP]},
        "running[0].policy",
    ),
    "holders of two tenants": (
        {
            "running": [
                holder(request="op", policy="red", tenant="a"),
                holder(request="op", policy="red", tenant="b"),
            ]
        },
        "running[1].tenant",
    ),
    "a holder that is part of another": (
        {"running": [holder(request="op", part_of="x")], "requests": [OP]},
        "running[0].part_of",
    ),
    "a start that is still to come": (
        {"running": [holder("r", policy="red", started_at=101)]},
        "running[0].started_at",
    ),
    "a start before the grant": (
        {"running": [holder("r", policy="red", started_at=5, allocated_at=6)]},
        "running[0].started_at",
    ),
    "a checkpoint that is still to come": (
        {"running": [holder("r", policy="red", last_checkpoint_at=101)]},
        "running[0].last_checkpoint_at",
    ),
    "two checkpoints": (
        {"running": [holder("r", policy="red", last_checkpoint_at=9, saved={"id": "c"})]},
        "running[0].last_checkpoint_at",
    ),
    "a type there is not": (
        {"policies": [{"pool": "p", "name": "x", "type": "batch"}]},
        "policies[0].type",
    ),
    "a policy below itself": (
        {
            "policies": [
                {"pool": "p", "name": "x", "parent": "y"},
                {"pool": "p", "name": "y", "parent": "x"},
            ]
        },
        "policies[0].parent",
    ),
    "a parent that is not there": (
        {"policies": [{"pool": "p", "name": "x", "parent": "z"}]},
        "policies[0].parent",
    ),
}


@pytest.mark.parametrize(("parts", "path"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named_by_its_path(parts: dict[str, Any], path: str) -> None:
    with pytest.raises(SnapshotError) as caught:
        load(snapshot(**parts))
    assert caught.value.path == path, caught.value

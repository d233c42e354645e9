"""`apply`: pools, policies and tenants become what is declared, all of it or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cede.engine.admin.apply import apply
from cede.engine.audit import audit
from cede.engine.decide import decide
from cede.engine.state.state import State
from cede.model.configuration import Change
from cede.model.errors import CedeError, Conflict
from cede.snapshot.configuration import read_configuration, show_configuration
from tests.engine.histories import HISTORY, TEAMS, Command, History

Data = dict[str, Any]


def ids() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"made-{next(numbers)}"


def made(state: State, wanted: Data, *, prune: bool = False) -> list[Change]:
    return apply(state, read_configuration(wanted), prune=prune, new_id=ids_of(state))


def ids_of(state: State) -> Callable[[], str]:
    taken = {*state.pools, *state.policies, *state.tenants}
    fresh = ids()
    return lambda: next(each for each in iter(fresh, None) if each not in taken)


def policy(team: str, pool: str = "east", **more: Any) -> Data:
    return {"pool": pool, "component": team, "component_type": "team", **more}


EAST = {"name": "east", "capacity": {"gpu": 8}}


@pytest.fixture
def state() -> State:
    found = State()
    reds = [policy("red", reserved={"gpu": 6}), policy("blue", reserved={"gpu": 2})]
    made(found, {"pools": [EAST], "policies": reds, "tenants": [{"name": "bio", "max_nodes": 2}]})
    found.drain()
    return found


def changes(state: State, wanted: Data, *, prune: bool = False) -> list[str]:
    return [f"{each.do} {each.kind} {each.name}" for each in made(state, wanted, prune=prune)]


def test_what_is_exported_is_nothing_to_change(state: State) -> None:
    before = state.index
    assert made(state, show_configuration(state), prune=True) == []
    assert state.index == before and state.events == []


def test_the_order_is_no_matter(state: State) -> None:
    """Each of these edits alone would break the sum."""
    swapped = [policy("red", reserved={"gpu": 2}), policy("blue", reserved={"gpu": 6})]
    for wanted in (swapped, swapped[::-1]):
        again = [policy("red", reserved={"gpu": 6}), policy("blue", reserved={"gpu": 2})]
        assert len(changes(state, {"policies": wanted})) == 2
        assert len(changes(state, {"policies": again[::-1]})) == 2
    larger = {"pools": [{**EAST, "capacity": {"gpu": 9}}]}
    assert changes(state, {"policies": [policy("red", reserved={"gpu": 7})], **larger}) == [
        *("update pool east", "update policy team:red")
    ]
    assert audit.check(state) == []


def test_what_is_not_said_has_its_usual_value(state: State) -> None:
    made(state, {"policies": [policy("red", priority=3, weight=2)]})
    (change,) = made(state, {"policies": [policy("red", weight=2)]})
    assert change.fields == {"priority": (3, 0)}


def test_pruning_keeps_to_the_kinds_that_are_declared(state: State) -> None:
    assert changes(state, {"policies": [policy("red")]}, prune=True) == [
        *("update policy team:red", "delete policy team:blue")
    ]
    assert changes(state, {"tenants": []}, prune=True) == ["delete tenant bio"]
    assert changes(state, {"pools": []}, prune=True) == ["delete pool east"]
    assert not state.policies
    kinds = [each.kind for each in state.drain().events]
    assert kinds == ["policy_updated", "policy_detached", "tenant_deleted", "pool_deleted"]


def test_a_tree_may_be_turned_over(state: State) -> None:
    below = policy("blue", reserved={"gpu": 2}, parent="red")
    made(state, {"policies": [policy("red", reserved={"gpu": 6}), below]})
    turned = [
        policy("red", parent="team:blue", reserved={"gpu": 1}),
        policy("blue", reserved="gpu=3"),
    ]
    assert changes(state, {"policies": turned}) == [
        *("update policy team:blue", "update policy team:red")
    ]
    by_team = {each.subject.name: each for each in state.policies.values()}
    assert by_team["red"].parent_id == by_team["blue"].id
    assert audit.check(state) == []


def node_pool(name: str, rack: str) -> Data:
    return {"name": name, "nodes": {"rack": rack}}


def test_pools_may_swap_their_nodes(state: State) -> None:
    from cede.engine.admin import fleet

    made(state, {"pools": [node_pool("a", "1"), node_pool("b", "2")]})
    for rack in ("1", "2"):
        fleet.register(
            state, id=f"n{rack}", name=f"n{rack}", amounts={"gpu": int(rack)},
            labels={"rack": rack}, now=0,
        )  # fmt: skip
    made(state, {"pools": [node_pool("a", "2"), node_pool("b", "1")]})
    found = {each.name: dict(each.capacity) for each in state.pools.values()}
    assert (found["a"], found["b"]) == ({"gpu": 2}, {"gpu": 1})
    assert audit.check(state) == []


REFUSED: dict[str, tuple[Data, str]] = {
    "a kind that is none": ({"pool": []}, "pool: unknown field; did you mean pools?"),
    "a field that is none": (
        {"pools": [{**EAST, "capcity": {}}]},
        "pools[0].capcity: unknown field; did you mean capacity?",
    ),
    "a setting that is none": (
        {"pools": [{**EAST, "settings": {"grase": 1}}]},
        "pools[0].settings.grase: unknown setting; did you mean grace?",
    ),
    "no amounts": ({"pools": [{"name": "x"}]}, "pools[0].capacity: give either"),
    "a pool twice": ({"pools": [EAST, EAST]}, "pools[1].name: pool east is declared twice"),
    "a policy twice": (
        {"policies": [policy("red"), policy("red")]},
        "policies[1].component: the policy of team:red in pool east is declared twice",
    ),
    "a tenant twice": ({"tenants": [{"name": "a"}, {"name": "a"}]}, "tenants[1].name: tenant a is"),
    "a pool that is not there": (
        {"policies": [policy("red", "eest")]},
        "policies[0].pool: no pool 'eest' is declared or there; did you mean east?",
    ),
    "a parent that is not there": (
        {"policies": [policy("red", parent="blu")]},
        "policies[0].parent: no policy 'blu' in pool east; did you mean blue?",
    ),
    "a ring": (
        {"policies": [policy("red", parent="blue"), policy("blue", parent="red")]},
        "policies[0].parent: team:red stands below team:blue stands below team:red",
    ),
    "too much together": (
        {"policies": [policy("green", reserved={"gpu": 1})]},
        "policies[0].reserved.gpu: policies red, blue, green would reserve 9 gpu together",
    ),
    "too little for one that stays": (
        {"pools": [{**EAST, "capacity": {"gpu": 7}}]},
        "pools[0].capacity: reserved.gpu of policy blue, which stays: policies red, blue would",
    ),
    "a key of no pool": (
        {"policies": [policy("red", limit={"tpu": 1})]},
        "policies[0].limit.tpu: pool east has no such key; it has gpu",
    ),
    "nodes instead of a capacity": (
        {"pools": [node_pool("east", "1")]},
        "pools[0].nodes: pool east has a capacity, and stays like that",
    ),
    "a policy of a pool that is pruned": (
        {"pools": [], "policies": [policy("red")]},
        "policies[0].pool: pool east is not declared, and would be deleted",
    ),
}


@pytest.mark.parametrize(("wanted", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_said_with_its_place(state: State, wanted: Data, said: str) -> None:
    before, index = show_configuration(state), state.index
    with pytest.raises(CedeError) as caught:
        made(state, wanted, prune=wanted.get("pools") == [])
    assert str(caught.value).startswith(said)
    assert (show_configuration(state), state.index) == (before, index)


def test_who_stands_above_one_that_stays_is_told(state: State) -> None:
    made(state, {"policies": [policy("green", parent="red", reserved={"gpu": 3})]})
    with pytest.raises(CedeError) as caught:
        made(state, {"policies": [policy("red", reserved={"gpu": 2})]})
    assert str(caught.value).startswith("policies[0].reserved: reserved.gpu of policy green, which")


def test_what_holds_work_is_not_pruned(state: State) -> None:
    history = History(state)
    history.run([(0, 0, 0, 0)])
    assert state.requests
    with pytest.raises(Conflict, match="in use"):
        made(state, {"policies": []}, prune=True)
    assert len(state.policies) == 2


# Small beside what pools have, so that most of them fit; a few do not.
AMOUNTS = st.dictionaries(
    st.sampled_from(["gpu", "gpu", "gpu", "mcpu"]), st.integers(0, 3), max_size=2
)
CAPACITY = st.fixed_dictionaries({"gpu": st.integers(4, 9)}, optional={"mcpu": st.just(4)})
POOL = st.fixed_dictionaries(
    {"name": st.sampled_from(["east", "west"]), "capacity": CAPACITY},
    optional={
        "preset": st.sampled_from(["quota", "fair_share", "classes"]),
        "settings": st.fixed_dictionaries({}, optional={"grace": st.integers(0, 9)}),
        "description": st.sampled_from(["", "for all"]),
    },
)
POLICY = st.fixed_dictionaries(
    {
        "pool": st.sampled_from(["east", "east", "west"]),
        "component": st.sampled_from(TEAMS),
        "component_type": st.just("team"),
    },
    optional={
        "parent": st.sampled_from(TEAMS),
        "priority": st.integers(0, 3),
        "reserved": AMOUNTS,
        "limit": st.fixed_dictionaries({"gpu": st.integers(2, 4)}),
        "weight": st.sampled_from([1, 2.5]),
        "max_class": st.sampled_from([5, 9]),
        "home": st.sampled_from([["n1"], {"rack": "1"}]),
    },
)
TENANT = st.fixed_dictionaries(
    {"name": st.sampled_from(["bio", "geo"])},
    optional={"max_nodes": st.integers(0, 3), "gpu_hours_budget": st.integers(1, 5)},
)
# Most lists of a few have a name twice or a reserve too many; these are drawn to be whole.
CONFIGURATION = st.fixed_dictionaries(
    {},
    optional={
        "pools": st.lists(POOL, min_size=1, max_size=2, unique_by=lambda each: each["name"]),
        "policies": st.lists(
            POLICY, min_size=1, max_size=4, unique_by=lambda each: (each["pool"], each["component"])
        ),
        "tenants": st.lists(TENANT, max_size=2, unique_by=lambda each: each["name"]),
    },
)


def test_many_policies_with_work_take_no_longer_than_they_are(state: State) -> None:
    """The ledger is opened once for all of them, and once when they are undone."""
    history = History(state)
    history.run([(0, 0, 0, 0)] * 3)
    opened: list[str] = []
    real = state.open_ledger

    def counted(pool_id: str) -> None:
        opened.append(pool_id)
        real(pool_id)

    state.open_ledger = counted  # type: ignore[method-assign]
    mark = state.mark()
    made(state, {"policies": [policy(f"team-{number}") for number in range(40)]})
    state.undo(mark)
    assert len(opened) == 2
    assert audit.check(state) == []


@settings(max_examples=150)
@given(one=CONFIGURATION, other=CONFIGURATION, history=HISTORY, prune=st.booleans())
def test_it_ends_in_what_is_declared_or_is_refused_whole(
    one: Data, other: Data, history: list[Command], prune: bool
) -> None:
    state = State()
    run = History(state)
    made(state, {"pools": [EAST, {**EAST, "name": "west"}]})
    for wanted in (one, other):
        before, index = show_configuration(state), state.index
        try:
            made(state, wanted, prune=prune)
        except CedeError:
            assert (show_configuration(state), state.index) == (before, index)
        else:
            _holds(state, wanted, before, prune=prune)
        decide(state, run.now)
        assert audit.check(state) == []
        state.drain()
        if state.policies:
            run.run(history)
        assert audit.check(state) == []


def _holds(state: State, wanted: Data, before: Data, *, prune: bool) -> None:
    """What is declared is there, and beside it what was there before unless it was pruned."""
    assert made(state, wanted, prune=prune) == []
    found = show_configuration(state)
    there, declared, old = (_by_key(each) for each in (found, wanted, before))
    for kind in there:
        assert {key: there[kind].get(key) for key in declared[kind]} == declared[kind]
        rest = {key: each for key, each in there[kind].items() if key not in declared[kind]}
        if prune and kind in wanted:
            assert not rest
        elif not prune:
            assert rest == {k: v for k, v in old[kind].items() if k not in declared[kind]}


def _by_key(data: Data) -> dict[str, dict[Any, Any]]:
    """Everything by what it is known by, without its place, and parents by their subjects."""
    read = read_configuration(data)
    return {
        "pools": {each.name: replace(each, path="") for each in read.pools or ()},
        "policies": {
            (each.pool, each.subject): replace(
                each,
                path="",
                parent=each.parent and f"team:{each.parent.removeprefix('team:')}",
            )
            for each in read.policies or ()
        },
        "tenants": {each.name: replace(each, path="") for each in read.tenants or ()},
    }

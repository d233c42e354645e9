"""The three groups of a request's allocations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cede.engine.fair.groups import Due, Group, Held, groups_of, in_order, split
from cede.engine.fair.settings import FairSettings
from tests.fair.cases import named, totals

SETTINGS = [
    "aggressive_preemption_satisfaction_threshold",
    "preemption_satisfaction_threshold",
    "non_preemptible_resource_usage_threshold",
    "consider_allocation_on_fair_share_bound_preemptible",
]


@pytest.mark.parametrize("case", named("groups"), ids=lambda case: case["name"])
def test_groups_are_those_of_the_case(case: dict[str, Any]) -> None:
    held = [
        Held(f"{place}-{number}", batch["resources"])
        for place, batch in enumerate(case["allocations_oldest_first"])
        for number in range(batch["count"])
    ]
    due = Due(
        tuple(case["fair_share"]), tuple(case["demand_share"]), totals(case["total_resources"])
    )
    found = split(held, due, FairSettings(**{each: case[each] for each in SETTINGS}))
    assert {group.value: len(ids) for group, ids in found.items()} == case["expected"]
    assert [each.id for each in held] == [id for group in Group for id in found[group]]


def test_saved_progress_puts_an_allocation_at_the_end() -> None:
    held = [Held("a", {"gpu": 1}, 5), Held("b", {"gpu": 1}, 2), Held("c", {"gpu": 1}, 3)]
    assert [each.id for each in in_order(held)] == ["b", "c", "a"]


def test_who_is_due_nothing_may_lose_everything() -> None:
    due = Due((0.0,), (1.0,), {"gpu": 8})
    assert groups_of([Held("a", {"gpu": 1})], due, FairSettings()) == [Group.PREEMPTIBLE]


@given(
    st.lists(st.integers(1, 9), max_size=12),
    st.integers(0, 40),
    st.integers(0, 60),
    st.booleans(),
    st.sampled_from([{}, {"gpu": 5}, {"mcpu": 3}]),
)
def test_groups_are_stretches_of_the_order(
    sizes: list[int], fair: int, more: int, inclusive: bool, threshold: dict[str, int]
) -> None:
    held = [Held(str(place), {"gpu": size, "mcpu": 1}) for place, size in enumerate(sizes)]
    due = Due((fair / 40, fair / 80), ((fair + more) / 40, 1.0), {"gpu": 40, "mcpu": 40})
    settings = FairSettings(
        consider_allocation_on_fair_share_bound_preemptible=inclusive,
        non_preemptible_resource_usage_threshold=threshold,
    )
    places = [list(Group).index(each) for each in groups_of(held, due, settings)]
    assert places == sorted(places)

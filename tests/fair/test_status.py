"""Status, satisfaction, starvation and the settings they go by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cede.engine.fair.settings import FairSettings, inherit
from cede.engine.fair.shares import compute
from cede.engine.fair.status import (
    Situation,
    Starvation,
    Starving,
    Status,
    exceeds,
    satisfaction,
    starve,
    status_of,
)
from cede.engine.fair.tree import Element, Kind, Mode, Options, Tree
from cede.model.errors import Invalid
from tests.fair.cases import named

DEFAULTS = FairSettings()
BELOW, NORMAL = Status.BELOW_FAIR_SHARE, Status.NORMAL


@pytest.mark.parametrize("case", named("status"), ids=lambda case: case["name"])
def test_status_is_that_of_the_case(case: dict[str, Any]) -> None:
    situation = Situation(
        tuple(case["fair_share"]),
        tuple(case["demand_share"]),
        tuple(case["usage_share"]),
        is_request=case["is_operation"],
    )
    settings = replace(DEFAULTS, fair_share_starvation_tolerance=case["tolerance"])
    assert status_of(situation, settings) == case["expected"]


SITUATIONS = {
    "less than the tolerated part": (Situation((0.5,), (1.0,), (0.39,)), BELOW),
    "exactly the tolerated part": (Situation((0.5,), (1.0,), (0.4,)), NORMAL),
    "nothing of a share that covers the demand": (Situation((0.5,), (0.5,), (0.0,)), BELOW),
    "all that is wanted": (Situation((0.5,), (0.5,), (0.5,)), NORMAL),
    "nothing waits": (Situation((0.5,), (1.0,), (0.0,), can_start=False), NORMAL),
    "one key is short, and another that counts is not": (
        Situation((0.5, 0.5), (1.0, 1.0), (0.1, 0.5)),
        NORMAL,
    ),
    "the only key that counts is short": (Situation((0.5, 0.2), (1.0, 0.2), (0.1, 0.2)), BELOW),
    "a policy is not judged more strictly": (
        Situation((0.5,), (0.5,), (0.45,), is_request=False),
        NORMAL,
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_below_fair_share(name: str) -> None:
    situation, expected = SITUATIONS[name]
    assert status_of(situation, DEFAULTS) is expected


def test_absolute_tolerance_asks_for_a_whole_task() -> None:
    absolute = replace(DEFAULTS, enable_absolute_fair_share_starvation_tolerance=True)
    short = Situation((0.5,), (1.0,), (0.35,), smallest=(0.2,))
    assert status_of(short, DEFAULTS) is BELOW
    assert status_of(short, absolute) is NORMAL
    assert status_of(replace(short, usage=(0.29,)), absolute) is BELOW


def test_a_blocked_key_does_not_count_unless_all_are() -> None:
    assert exceeds((0.5, 0.1), (0.4, 0.1), (False, True))
    assert not exceeds((0.5, 0.1), (0.4, 0.1), (False, False))
    assert exceeds((0.5, 0.1), (0.4, 0.1), (True, True))


@pytest.mark.parametrize("case", named("satisfaction"), ids=lambda case: case["name"])
def test_satisfaction_is_that_of_the_case(case: dict[str, Any]) -> None:
    shares = (tuple(case[each]) for each in ("fair_share", "demand_share", "usage_share"))
    assert satisfaction(*shares) == pytest.approx(case["expected"])


def test_what_is_due_to_the_last_bit_is_not_exceeded() -> None:
    used = (0.1 + 0.2, 0.6)
    assert used[0] > 0.3
    assert satisfaction((0.3, 1.0), (0.3, 1.0), used) == pytest.approx(0.6)


def test_use_of_what_one_is_not_due_at_all_is_beyond_measure() -> None:
    assert satisfaction((0.5, 0.0), (1.0, 0.0), (0.6, 0.1)) == 1e9


@pytest.mark.parametrize("mode", Mode)
def test_the_least_satisfied_are_served_first(mode: Mode) -> None:
    case = next(each for each in named("order") if "operations" in each)
    unit = ("user_slots", "cpu", "memory")
    requests = [
        Element(
            str(each["id"]),
            parent="policy",
            usage=dict.fromkeys(unit, each["running_unit_allocations"]),
            demand=dict.fromkeys(
                unit, each["running_unit_allocations"] + each["pending_unit_allocations"]
            ),
        )
        for each in case["operations"]
    ]
    tree = Tree(case["total_resources"], (Element("policy", Kind.POLICY, mode=mode), *requests))
    shares = compute(tree, Options(main="cpu"))
    ratios = {}
    for each in requests:
        share = shares[each.id]
        ratios[each.id] = satisfaction(share.total, share.demand, share.usage)
    order = sorted(ratios, key=ratios.__getitem__)
    assert [order.index(each.id) for each in requests] == case[
        "expected_scheduling_index_by_operation"
    ]


def test_a_promised_share_finds_those_below_it_whatever_their_satisfaction() -> None:
    """One of two policies has 70 of 100 guaranteed, and works out what that promises."""
    policies = [
        Element("a", Kind.POLICY),
        Element("b", Kind.POLICY, guarantee={"cpu": 70}, promises=True),
    ]
    requests = [
        Element(f"{policy}{number}", parent=policy, demand={"cpu": 50}, usage={"cpu": used})
        for policy, used in (("a", 0), ("b", 20))
        for number in (1, 2)
    ]
    shares = compute(Tree({"cpu": 100}, (*policies, *requests)), Options(main="cpu"))
    ratios, first = {}, []
    for each in requests:
        share = shares[each.id]
        ratios[each.id] = satisfaction(share.total, share.demand, share.usage)
        if share.promised is not None and exceeds(share.promised, share.usage, (False,)):
            first.append(each.id)
    assert sorted(ratios, key=ratios.__getitem__) == ["a1", "a2", "b1", "b2"]
    assert first == ["b1", "b2"]


def test_nobody_starves_at_the_first_look() -> None:
    hasty = replace(
        DEFAULTS, fair_share_starvation_timeout=0, fair_share_aggressive_starvation_timeout=0
    )
    first = starve(Starvation(), True, 1_000, hasty)
    assert first == Starvation(Starving.NON_STARVING, 1_000)
    assert starve(first, True, 1_000, hasty).status is Starving.NON_STARVING
    assert starve(first, True, 1_001, hasty).status is Starving.STARVING


def test_time_outs_are_exceeded_not_reached_and_run_from_one_start() -> None:
    settings = replace(DEFAULTS, enable_aggressive_starvation=True)
    state = Starvation(since=0)
    for now, expected in (
        (30_000, Starving.NON_STARVING),
        (30_001, Starving.STARVING),
        (120_000, Starving.STARVING),
        (120_001, Starving.AGGRESSIVELY_STARVING),
    ):
        state = starve(state, True, now, settings)
        assert state == Starvation(expected, 0)
    assert starve(state, True, 120_002, DEFAULTS).status is Starving.STARVING
    assert starve(state, False, 120_002, settings) == Starvation()


def test_policies_override_freely() -> None:
    case = next(each for each in named("settings") if "pools" in each)
    known: dict[str | None, FairSettings] = {None: DEFAULTS}
    for name, (parent, tolerance) in case["pools"].items():
        own = {} if tolerance is None else {"fair_share_starvation_tolerance": tolerance}
        known[name] = inherit(known[parent], own, Kind.POLICY)
    got = {name: each.fair_share_starvation_tolerance for name, each in known.items() if name}
    assert got == case["expected"]


def test_requests_may_only_be_more_patient() -> None:
    case = next(each for each in named("settings") if "operations" in each)
    names = {
        "tolerance": "fair_share_starvation_tolerance",
        "timeout_ms": "fair_share_starvation_timeout",
    }
    pool = replace(DEFAULTS, **{names[each]: value for each, value in case["tree"].items()})
    for request in case["operations"]:
        own = {names[each]: value for each, value in request["spec"].items()}
        settings = inherit(pool, own, Kind.REQUEST)
        for each, value in request["effective"].items():
            assert getattr(settings, names[each]) == value


def test_requests_may_only_lower_their_protection() -> None:
    pool = replace(DEFAULTS, non_preemptible_resource_usage_threshold={"gpu": 4})
    for own, expected in (
        ({"gpu": 2}, {"gpu": 2}),
        ({"gpu": 9}, {"gpu": 4}),
        ({"mcpu": 1}, {"gpu": 4, "mcpu": 1}),
        ({}, {}),
    ):
        said = {"non_preemptible_resource_usage_threshold": own}
        settings = inherit(pool, said, Kind.REQUEST)
        assert settings.non_preemptible_resource_usage_threshold == expected


@pytest.mark.parametrize(
    ("own", "kind"),
    [
        ({"preemption_satisfaction_threshold": 0.5}, Kind.POLICY),
        ({"enable_aggressive_starvation": True}, Kind.REQUEST),
        ({"allow_aggressive_preemption": False}, Kind.REQUEST),
        ({"patience": 1}, Kind.POLICY),
        ({"fair_share_starvation_tolerance": 1.5}, Kind.POLICY),
    ],
)
def test_what_may_not_be_set_is_refused(own: dict[str, Any], kind: Kind) -> None:
    with pytest.raises(Invalid, match=next(iter(own))):
        inherit(DEFAULTS, own, kind)


def test_an_aggressive_threshold_above_the_normal_one_is_refused() -> None:
    with pytest.raises(Invalid, match="aggressive_preemption_satisfaction_threshold"):
        FairSettings(
            preemption_satisfaction_threshold=0.5, aggressive_preemption_satisfaction_threshold=0.6
        )
    with pytest.raises(Invalid, match="fair_share_aggressive_starvation_timeout"):
        FairSettings(fair_share_aggressive_starvation_timeout=29_999)

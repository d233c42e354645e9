"""The order of waiters of equal standing."""

from __future__ import annotations

from dataclasses import astuple, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cede.engine.queue import score as factor
from cede.engine.queue.budget import penalty
from cede.engine.queue.score import DEFAULT, PROFILES, Factors, Weights, score
from cede.engine.rights.price import saving_minutes
from cede.model.policy import Kind
from cede.model.stopping import Checkpoint
from tests.classes.cases import CASES, NOW

HOUR = 3_600_000
DAY = 24 * HOUR


def factors_of(case: dict[str, Any]) -> Factors:
    target, actual, burst, utilization = case["usage"] or (None, 0, None, 1)
    fitness = case["conformance"]
    return Factors(
        priority=factor.priority(case["class"]),
        wait_time=factor.wait_time(NOW - case["age"] * 1000, NOW),
        fair_share=factor.fair_share(target, actual, burst, utilization),
        topology=factor.topology(
            case["nodes"], case["groups"], case["localities"], case["same_numa"]
        ),
        data_readiness=factor.data_readiness(case["data"]),
        backlog=factor.backlog(case["queued"], case["running"]),
        energy=factor.energy(case["energy"]),
        checkpoint_efficiency=factor.checkpoint_efficiency(
            saving_minutes(Checkpoint(case["checkpoint"]))
        ),
        # The case gives the quotient itself.
        conformance=factor.conformance(None, 1) if fitness is None else fitness,
    )


@pytest.mark.parametrize("case", CASES["score"], ids=lambda case: case["name"])
def test_factors_and_score_are_those_of_the_case(case: dict[str, Any]) -> None:
    factors = factors_of(case)
    assert astuple(factors) == pytest.approx(case["factors"], rel=1e-14, abs=1e-15)
    assert penalty(case["budget"]) == pytest.approx(case["penalty"], rel=1e-14)
    found = score(factors, Weights(*case["weights"]), penalty(case["budget"]))
    assert found == pytest.approx(case["score"], rel=1e-14)


def test_weights_are_those_of_the_table_but_for_one() -> None:
    theirs = {name: Weights(*row) for name, row in CASES["weights"].items()}
    ours = {str(kind): weights for kind, weights in PROFILES.items()} | {"default": DEFAULT}
    theirs["ml_training"] = replace(theirs["ml_training"], checkpoint_efficiency=0.15)
    assert ours == theirs
    assert set(PROFILES) == set(Kind)
    assert [each.name for each in fields(Weights)] == [each.name for each in fields(Factors)]


def test_the_weight_of_training_changes_the_order() -> None:
    """Work that saves itself in half a minute, or work that nobody saves and that has waited 80
    minutes longer: 0.15 decides for the first, 0.10 for the second.
    """
    saving = saving_minutes(Checkpoint.AUTO, estimate=30_000)
    quick = Factors(checkpoint_efficiency=factor.checkpoint_efficiency(saving))
    patient = Factors(wait_time=factor.wait_time(NOW - 80 * HOUR // 60, NOW))
    training = PROFILES[Kind.ML_TRAINING]
    lighter = replace(training, checkpoint_efficiency=0.10)
    assert score(quick, training) > score(patient, training)
    assert score(quick, lighter) < score(patient, lighter)


@pytest.mark.parametrize(
    ("attached", "locality"),
    [(None, 0.5), ([], 1.0), ([8], 1.0), ([6, 2], 0.75), ([4, 4, 4, 4], 0.25), ([0, 0], 0.5)],
)
def test_memory_is_near_where_most_is_attached(attached: list[int] | None, locality: float) -> None:
    assert factor.memory_locality(attached) == locality


def test_conformance() -> None:
    assert factor.conformance(8, 1) == 1.0, "bounded, unlike where the factor comes from"
    assert factor.conformance(3, 4) == 0.75
    assert factor.conformance(0, 4) == 0.0
    assert factor.conformance(None, 4) == 0.5
    assert factor.conformance(None, 0) == 1.0


def test_what_is_not_known_is_in_the_middle() -> None:
    assert factor.energy(None) == factor.data_readiness(None) == 0.5
    assert factor.fair_share(None, 0.3) == factor.fair_share(0.0, 0.3) == 0.5
    assert factor.topology(4, 0) == 0.5


def test_nothing_running_is_no_backlog() -> None:
    assert factor.backlog(5, 0) == 0


def test_who_was_submitted_in_the_future_has_not_waited() -> None:
    assert factor.wait_time(NOW + 1, NOW) == 0
    assert factor.wait_time(NOW - 999, NOW) == 0, "whole seconds"


def test_without_a_budget_nothing_is_used_up() -> None:
    assert penalty(None) == 1


@pytest.mark.parametrize(
    ("used", "left"),
    [(0, 1), (0.8, 1), (0.9, 0.86087572), (1.0, 0.525), (1.2, 0.05), (1.21, 0.05), (9, 0.05)],
)
def test_the_penalty_at_some_points(used: float, left: float) -> None:
    assert penalty(used) == pytest.approx(left, abs=1e-8)


parts = st.floats(0, 3)


@given(parts, parts)
def test_who_has_used_more_is_never_better_off(used: float, more: float) -> None:
    assert 0.05 <= penalty(used + more) <= penalty(used) <= 1


unit = st.floats(0, 1)
any_factors = st.builds(Factors, *[unit] * 9)


@given(any_factors, st.integers(0, 8), unit, st.sampled_from(Kind))
def test_no_factor_counts_against_anybody(
    factors: Factors, place: int, more: float, kind: Kind
) -> None:
    name = fields(Factors)[place].name
    better = replace(factors, **{name: getattr(factors, name) + more})
    assert score(factors, PROFILES[kind]) <= score(better, PROFILES[kind]) + 1e-12
    assert score(factors, PROFILES[kind], 0.5) == score(factors, PROFILES[kind]) * 0.5


@given(st.integers(0, 10**13), st.integers(0, 10**10))
def test_waiting_longer_never_sets_back(submitted: int, more: int) -> None:
    assert factor.wait_time(submitted, 10**13) <= factor.wait_time(submitted, 10**13 + more)


@given(unit, unit, st.none() | st.floats(0, 2), unit)
def test_having_more_never_helps(target: float, actual: float, burst: float, idle: float) -> None:
    has = factor.fair_share(target, actual, burst, idle)
    assert 0 <= factor.fair_share(target, actual + 0.1, burst, idle) <= has <= 1


@given(st.integers(0, 5000), st.integers(0, 100), st.lists(unit, max_size=9), st.booleans())
def test_topology_is_a_part(nodes: int, groups: int, near: list[float], numa: bool) -> None:
    assert 0 <= factor.topology(nodes, groups, near, numa) <= 1 + 1e-12

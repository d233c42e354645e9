"""What it costs to stop a holder, and who is never stopped."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cede.engine.queue.score import PROFILES
from cede.engine.rights.price import (
    Price,
    PriceSettings,
    Shield,
    ShieldSettings,
    Stopping,
    price_of,
    saving_minutes,
    shield_of,
    value_of,
)
from cede.model.policy import Kind
from cede.model.stopping import Checkpoint
from tests.classes.cases import NOW, PREEMPTIONS, Case, Holder
from tests.classes.literal import cost

MINUTE = 60_000
AUTO, MANUAL, NONE = Checkpoint.AUTO, Checkpoint.MANUAL, Checkpoint.NONE


def holder(minutes: float | None = 30, **more: Any) -> Stopping:
    """One that started so many minutes ago."""
    started = None if minutes is None else NOW - int(minutes * MINUTE)
    return Stopping(now=NOW, started_at=started, **more)


# Its holder starts in ten minutes: negative time in the system of the cases, none in ours.
IN_FUTURE = "edge_started_in_future"


@pytest.mark.parametrize(
    "case", [each for each in PREEMPTIONS if each.name != IN_FUTURE], ids=lambda case: case.name
)
def test_prices_are_those_of_the_case(case: Case) -> None:
    """Bit for bit: those of the victims by what is expected, all others by the oracle."""
    prices = {
        each.id: price_of(each.stopping(), case.settings).total
        for each in case.holders
        if each.preemption_class < case.preemption_class
    }
    assert [prices[each] for each in case.victims or []] == case.costs
    for each in case.holders:
        if each.id in prices:
            assert prices[each.id] == cost(each, case.threshold), each


def test_a_start_in_the_future_costs_no_less_than_nothing() -> None:
    (case,) = [each for each in PREEMPTIONS if each.name == IN_FUTURE]
    (each,) = case.holders
    assert case.costs == [cost(each, case.threshold)] == [-9.0]
    assert price_of(each.stopping(), case.settings) == Price(0.0, 0.0, 1.0)


# A sentence of the rule, a holder and its parts: checkpoint, recompute, remaining.
RULES: dict[str, tuple[Stopping, tuple[float, float, float]]] = {
    "auto is five minutes": (holder(checkpoint=AUTO), (5, 0, 0)),
    "auto by its own estimate": (holder(checkpoint=AUTO, estimate=90_000), (1.5, 0, 0)),
    "an estimate of nothing is believed": (holder(checkpoint=AUTO, estimate=0), (0, 0, 0)),
    "manual is its time-out": (holder(checkpoint=MANUAL, timeout=7 * MINUTE), (7, 0, 0)),
    "manual is ten minutes by default": (holder(checkpoint=MANUAL), (10, 0, 0)),
    "manual by its own estimate": (holder(checkpoint=MANUAL, estimate=2 * MINUTE), (2, 0, 0)),
    "none loses GPU-minutes": (holder(nodes=4, gpus_per_node=8), (0, 960, 0)),
    "a node without GPUs counts as one": (holder(nodes=4), (0, 120, 0)),
    "none has no use for an estimate": (holder(estimate=MINUTE), (0, 30, 0)),
    "what it saved by itself is not lost": (
        holder(last_checkpoint_at=NOW - 4 * MINUTE), (0, 4, 0)),
    "what it began with is not lost either": (
        holder(last_checkpoint_at=NOW - 60 * MINUTE), (0, 30, 0)),
    "what has not started loses nothing": (holder(None, walltime=60 * MINUTE), (0, 0, 1)),
    "minutes are whole": (holder(30.99), (0, 30, 0)),
    "without walltime nothing remains": (holder(10_000, checkpoint=AUTO), (5, 0, 0)),
    "just started": (holder(5.99, walltime=60 * MINUTE, checkpoint=AUTO), (5, 0, 1)),
    "a tenth used": (holder(6, walltime=60 * MINUTE, checkpoint=AUTO), (5, 0, 10)),
    "half used": (holder(30, walltime=60 * MINUTE, checkpoint=AUTO), (5, 0, 50)),
    "nearly done": (holder(54, walltime=60 * MINUTE, checkpoint=AUTO), (5, 0, 1000)),
    "overdue": (holder(70, walltime=60 * MINUTE, checkpoint=AUTO), (5, 0, 1000)),
    "training": (
        holder(walltime=60 * MINUTE, checkpoint=AUTO, kind=Kind.ML_TRAINING), (15, 0, 50)),
    "training that nobody saves": (holder(kind=Kind.ML_TRAINING), (0, 30, 0)),
    "interactive counts half": (
        holder(walltime=60 * MINUTE, checkpoint=AUTO, kind=Kind.INTERACTIVE), (2.5, 0, 25)),
    "service counts whole": (holder(checkpoint=AUTO, kind=Kind.SERVICE), (5, 0, 0)),
    "a burst is not discounted by default": (holder(checkpoint=AUTO, bursting=True), (5, 0, 0)),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_the_price(rule: str) -> None:
    stopping, parts = RULES[rule]
    price = price_of(stopping)
    assert (price.checkpoint, price.recompute, price.remaining) == parts
    assert price.total == sum(parts)


def test_a_burst_counts_half_where_the_pool_says_so() -> None:
    bursting = holder(checkpoint=AUTO, walltime=60 * MINUTE, bursting=True)
    settings = PriceSettings(burst_discount=True)
    assert price_of(bursting, settings) == Price(2.5, 0.0, 25.0)
    assert price_of(replace(bursting, bursting=False), settings).total == 55
    interactive = replace(bursting, kind=Kind.INTERACTIVE)
    assert price_of(interactive, settings).total == 55 / 4


def test_minutes_may_be_counted_exactly() -> None:
    settings = PriceSettings(whole_minutes=False)
    assert price_of(holder(30.5, nodes=2), settings).recompute == 61
    short = Stopping(NOW, AUTO, NOW - 20_000, walltime=40_000)
    assert price_of(short, settings).remaining == 50
    assert price_of(short).remaining == 0


def test_the_near_completion_fraction_is_a_setting() -> None:
    half = holder(30, walltime=60 * MINUTE, checkpoint=AUTO)
    assert price_of(half, PriceSettings(near_completion_fraction=0.5)).remaining == 1000


def cheapest(candidates: dict[str, Stopping], settings: PriceSettings) -> str:
    return min(candidates, key=lambda name: price_of(candidates[name], settings).total)


def test_the_weight_of_training_changes_the_victim() -> None:
    """0.15 against the 0.05 of batch work; with 0.10 the training would be stopped."""
    candidates = {
        "training": holder(checkpoint=AUTO, kind=Kind.ML_TRAINING),
        "batch": holder(checkpoint=AUTO, estimate=12 * MINUTE),
    }
    weight, batch = (
        PROFILES[kind].checkpoint_efficiency for kind in (Kind.ML_TRAINING, Kind.HPC_BATCH)
    )
    assert PriceSettings().ml_checkpoint_factor == pytest.approx(weight / batch)
    assert cheapest(candidates, PriceSettings()) == "batch"
    assert cheapest(candidates, PriceSettings(ml_checkpoint_factor=0.10 / batch)) == "training"


def test_minutes_of_saving() -> None:
    assert saving_minutes(NONE, MINUTE) is None
    assert saving_minutes(AUTO) == 5
    assert saving_minutes(MANUAL) == 10
    assert saving_minutes(AUTO, -1) == 0


def test_a_waiter_is_worth_its_gpu_minutes_and_its_class() -> None:
    hour = 60 * MINUTE
    assert value_of(hour, 0) == 60
    assert value_of(hour, 7, nodes=2, gpus_per_node=4) == 60 * 8 * 8
    assert value_of(hour // 120, 1) == 1
    assert value_of(None, 0) == math.inf
    assert value_of(hour, 0, sensitive=True) == math.inf


WALLTIME = 60 * MINUTE
# Who it is, whether sensitive, its class, and what protects it.
SHIELDS: dict[str, tuple[Stopping, int, bool, Shield | None]] = {
    "normal work": (holder(walltime=WALLTIME), 4, False, None),
    "unsaved, class 6": (holder(), 6, False, None),
    "unsaved, class 7": (holder(), 7, False, Shield.UNSAVED),
    "saved by itself, class 9": (holder(checkpoint=MANUAL), 9, False, None),
    "class 10": (holder(checkpoint=AUTO), 10, False, Shield.SENSITIVE),
    "sensitive, class 0": (holder(checkpoint=AUTO), 0, True, Shield.SENSITIVE),
    "of a sensitive policy": (holder(checkpoint=AUTO, kind=Kind.SENSITIVE), 0, False,
        Shield.SENSITIVE),
    "more than five minutes left": (holder(54.99, walltime=WALLTIME), 4, False, None),
    "five minutes left": (holder(55, walltime=WALLTIME), 4, False, Shield.NEAR_COMPLETION),
    "overdue": (holder(61, walltime=WALLTIME), 4, False, Shield.NEAR_COMPLETION),
    "short, not started": (holder(None, walltime=MINUTE), 4, False, None),
    "short": (holder(0, walltime=MINUTE), 4, False, Shield.NEAR_COMPLETION),
}  # fmt: skip


@pytest.mark.parametrize("who", SHIELDS)
def test_who_is_never_stopped(who: str) -> None:
    stopping, rank, sensitive, shield = SHIELDS[who]
    assert shield_of(stopping, rank, sensitive) is shield


def test_two_of_the_shields_are_settings() -> None:
    off = ShieldSettings(near_completion_threshold=0, protect_unsaved=False)
    for stopping, rank, sensitive, shield in SHIELDS.values():
        left = shield if shield is Shield.SENSITIVE else None
        assert shield_of(stopping, rank, sensitive, off) is left
    longer = ShieldSettings(near_completion_threshold=40 * MINUTE)
    ending = holder(30, walltime=WALLTIME)
    assert shield_of(ending, 0, settings=longer) is Shield.NEAR_COMPLETION


instants = st.integers(0, 2 * NOW)
durations = st.integers(0, 10_000 * MINUTE)
stoppings = st.builds(
    Stopping,
    now=instants,
    checkpoint=st.sampled_from(Checkpoint),
    started_at=st.none() | instants,
    last_checkpoint_at=st.none() | instants,
    estimate=st.none() | durations,
    timeout=durations,
    walltime=st.none() | durations,
    nodes=st.integers(0, 10_000),
    gpus_per_node=st.integers(0, 16),
    kind=st.sampled_from(Kind),
    bursting=st.booleans(),
)
any_settings = st.builds(
    PriceSettings,
    near_completion_fraction=st.floats(0, 1),
    interactive_discount=st.floats(0, 1),
    ml_checkpoint_factor=st.floats(0, 10),
    burst_discount=st.booleans(),
    whole_minutes=st.booleans(),
)


@given(stoppings, any_settings)
def test_no_part_is_negative_and_they_add_up(stopping: Stopping, settings: PriceSettings) -> None:
    price = price_of(stopping, settings)
    parts = (price.checkpoint, price.recompute, price.remaining)
    assert all(0 <= part < math.inf for part in parts)
    assert price.total == sum(parts)
    assert not (price.checkpoint and price.recompute)


@given(stoppings, durations)
def test_a_fresher_checkpoint_is_never_dearer(stopping: Stopping, older: int) -> None:
    fresh = replace(stopping, last_checkpoint_at=stopping.now)
    stale = replace(stopping, last_checkpoint_at=max(0, stopping.now - older))
    assert price_of(fresh).total <= price_of(stale).total


@given(stoppings, st.integers(0, 100))
def test_more_nodes_are_never_cheaper(stopping: Stopping, more: int) -> None:
    wider = replace(stopping, nodes=stopping.nodes + more)
    assert price_of(stopping).total <= price_of(wider).total


@given(stoppings)
def test_training_is_never_cheaper_than_batch_and_interactive_never_dearer(
    stopping: Stopping,
) -> None:
    of = {kind: price_of(replace(stopping, kind=kind)).total for kind in Kind}
    assert of[Kind.INTERACTIVE] <= of[Kind.HPC_BATCH] <= of[Kind.ML_TRAINING]


holders = st.builds(
    Holder,
    id=st.just(1),
    tenant=st.just("t"),
    preemption_class=st.integers(0, 10),
    age=st.none() | st.integers(0, 1_000_000),
    walltime=st.none() | st.integers(0, 1_000_000),
    nodes=st.lists(st.just("n"), max_size=9).map(tuple),
    checkpoint=st.sampled_from(["auto", "manual", "none"]),
    running=st.booleans(),
    sensitive=st.booleans(),
    bursting=st.booleans(),
)


@given(holders, st.floats(0, 1))
def test_prices_are_those_of_the_oracle(each: Holder, threshold: float) -> None:
    settings = PriceSettings(threshold, burst_discount=True)
    assert price_of(each.stopping(), settings).total == cost(each, threshold)


@given(durations, st.integers(0, 9), st.integers(1, 100), st.integers(0, 16))
def test_a_higher_class_is_worth_no_less(walltime: int, rank: int, nodes: int, gpus: int) -> None:
    worth = value_of(walltime, rank, nodes, gpus)
    assert 0 <= worth <= value_of(walltime, rank + 1, nodes, gpus)
    assert worth <= value_of(walltime, rank, nodes + 1, gpus)

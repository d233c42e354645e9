"""Whether running work should save itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cede.engine.state.saving import (
    BrokerSettings,
    Judgement,
    Pressure,
    Running,
    cost_of,
    due_at,
    judge,
)
from cede.model.stopping import Checkpoint
from tests.classes.cases import CASES, NOW

SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
CALM = Pressure()
WANTED = Pressure(waiting_higher=5, backlog=0.95)


def running(minutes: float = 30, **more: Any) -> Running:
    return Running(NOW, NOW - int(minutes * MINUTE), gpus_per_node=4, **more)


@pytest.mark.parametrize("case", CASES["checkpoint"], ids=lambda case: case["name"])
def test_cost_and_value_are_those_of_the_case(case: dict[str, Any]) -> None:
    """The system of the cases writes from all nodes through one pipe, so its seconds to write are
    as many times ours as there are nodes; an estimate of that length makes the two agree.
    """
    elapsed, nodes = case["elapsed"], case["nodes"]
    found = judge(
        Running(
            NOW,
            None if elapsed is None else NOW - elapsed * SECOND,
            estimate=8 * SECOND * nodes,
            nodes=nodes,
            gpus_per_node=4,
            preemption_class=case["class"],
        ),
        Pressure(case["waiting"], case["backlog"], case["failure"]),
    )
    assert found.cost == pytest.approx(case["cost"], rel=1e-12)
    assert found.value == pytest.approx(case["value"], rel=1e-12)
    assert found.is_worth_it is case["worth_it"]


def test_a_checkpoint_is_what_counts_not_the_start() -> None:
    long_ago = running(24 * 60)
    assert judge(long_ago).is_due
    saved = replace(long_ago, last_checkpoint_at=NOW - 6 * MINUTE)
    assert not judge(saved).is_due
    assert judge(saved).value < judge(long_ago).value


def test_the_cost_grows_with_the_nodes_and_not_with_their_square() -> None:
    assert cost_of(running(nodes=128)) / cost_of(running(nodes=1)) < 128


@pytest.mark.parametrize("nodes", [1, 8, 32, 128, 1024])
def test_wide_work_is_saved_too(nodes: int) -> None:
    wide = running(120, nodes=nodes)
    assert judge(wide, WANTED).is_due


def test_borrowed_nodes_make_it_sooner() -> None:
    """By hand: 8 s to write, 4 GPUs, 80 GiB: 8 + 32 + 1.6 = 41.6. At home 4 GPUs at a risk of 0.001
    a second are worth that after 10,400 s; at 0.001 + 0.01 after 945.5 s.
    """
    at_home = running()
    since = at_home.started_at or 0
    assert cost_of(at_home) == pytest.approx(41.6)
    assert due_at(at_home) == since + 10_400_001
    assert due_at(replace(at_home, borrowed=True)) == since + 945_455


def test_an_estimate_of_its_own_is_what_writing_takes() -> None:
    slow = running(estimate=80 * SECOND)
    assert cost_of(slow) == pytest.approx(80 + 320 + 1.6)


def test_never_sooner_than_the_least_interval_and_never_later_than_the_greatest() -> None:
    since = running().started_at or 0
    assert due_at(running(), Pressure(failure_probability=1e-6)) == since + 6 * HOUR
    assert due_at(running(), Pressure(waiting_higher=100)) == since + 5 * MINUTE
    assert due_at(running(), Pressure(failure_probability=0)) == since + 6 * HOUR
    sensitive = running(sensitive=True)
    assert due_at(sensitive, Pressure(waiting_higher=100)) == since + 10 * MINUTE
    assert due_at(sensitive, Pressure(failure_probability=0)) == since + HOUR
    free, safe = BrokerSettings(cost_per_gib=0), Pressure(failure_probability=0)
    assert due_at(running(estimate=0), safe, free) == since + 6 * HOUR, (
        "worth nothing, costs nothing"
    )
    nowhere = BrokerSettings(bandwidth=0)
    assert due_at(running(), WANTED, nowhere) == since + 6 * HOUR


def test_higher_classes_that_wait_count_less_against_a_high_class() -> None:
    values = [judge(running(0, preemption_class=rank), WANTED).value for rank in (0, 5, 10)]
    assert values == [pytest.approx(each) for each in (557, 307, 57)]


def test_what_is_worth_just_its_cost_is_not_worth_it() -> None:
    assert not Judgement(cost=1.0, value=1.0, is_due=False).is_worth_it


@pytest.mark.parametrize(
    "who",
    [
        running(10_000, checkpoint=Checkpoint.NONE),
        running(10_000, checkpoint=Checkpoint.MANUAL),
        replace(running(), started_at=None),
    ],
    ids=["nobody saves it", "it sees to it itself", "it has not started"],
)
def test_who_is_never_asked(who: Running) -> None:
    assert due_at(who, WANTED) is None
    assert not judge(who, WANTED).is_due


runnings = st.builds(
    Running,
    now=st.integers(0, 10**10),
    started_at=st.integers(0, 10**10),
    last_checkpoint_at=st.none() | st.integers(0, 10**10),
    estimate=st.none() | st.integers(0, HOUR),
    nodes=st.integers(1, 5000),
    gpus_per_node=st.integers(0, 16),
    preemption_class=st.integers(0, 10),
    borrowed=st.booleans(),
    sensitive=st.booleans(),
)
pressures = st.builds(
    Pressure,
    waiting_higher=st.integers(0, 100),
    backlog=st.floats(0, 1),
    failure_probability=st.floats(0, 1),
)


@given(runnings, pressures)
def test_it_is_due_from_that_instant_on(who: Running, pressure: Pressure) -> None:
    due = due_at(who, pressure)
    assert due is not None
    assert judge(replace(who, now=due), pressure).is_due
    assert not judge(replace(who, now=due - 1), pressure).is_due
    since = max(who.started_at or 0, who.last_checkpoint_at or 0)
    least, most = (10 * MINUTE, HOUR) if who.sensitive else (5 * MINUTE, 6 * HOUR)
    assert least <= due - since <= most


@given(runnings, pressures)
def test_it_is_due_because_it_is_worth_it_or_overdue(who: Running, pressure: Pressure) -> None:
    found = judge(who, pressure)
    passed = who.now - max(who.started_at or 0, who.last_checkpoint_at or 0)
    most = HOUR if who.sensitive else 6 * HOUR
    # What is worth exactly its cost may be either, by a rounding.
    nearly = found.value > found.cost * (1 - 1e-9)
    assert not found.is_due or nearly or passed >= most
    clearly = found.value > found.cost * (1 + 1e-9) + 1e-9
    least = (10 if who.sensitive else 5) * MINUTE
    if clearly and passed > least:
        assert found.is_due or passed < least + 2


@given(runnings, pressures)
def test_borrowed_work_is_never_later(who: Running, pressure: Pressure) -> None:
    at_home = due_at(replace(who, borrowed=False), pressure)
    away = due_at(replace(who, borrowed=True), pressure)
    assert at_home is not None and away is not None and away <= at_home


@given(runnings, pressures, st.integers(0, 50), st.floats(0, 1))
def test_more_pressure_is_never_later(
    who: Running, pressure: Pressure, more: int, risk: float
) -> None:
    before = due_at(who, pressure)
    harder = Pressure(
        pressure.waiting_higher + more, 1.0, min(1.0, pressure.failure_probability + risk)
    )
    after = due_at(who, harder)
    assert before is not None and after is not None and after <= before


@given(runnings, st.integers(1, 100))
def test_the_cost_of_a_node_never_grows_with_their_number(who: Running, more: int) -> None:
    wider = replace(who, nodes=who.nodes + more)
    assert cost_of(wider) / wider.nodes <= cost_of(who) / who.nodes * (1 + 1e-9)

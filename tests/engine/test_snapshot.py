"""A snapshot is the whole state: reading it back and deciding gives what the original would do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cede.engine.audit import audit
from cede.engine.decide import decide
from cede.engine.state.state import State
from cede.model.plan import Grant, Plan
from cede.snapshot.reader import load
from cede.snapshot.writer import dump
from tests.engine.histories import HISTORY, Command, History, world
from tests.scenario import ranked, tell

STOPPING = """
    pool gpus 8 grace 20s
    team red  limit 8 priority 10
    team blue reserved 4 limit 8 priority 5
    red submits r1..r4 of 2 retries 2 delay 5s backoff 2 -> running r1 r2 r3 r4
    r1 starts
    after 3s
    blue submits b1 of 4 walltime 100s -> stopping r3 r4, earmark b1
    r4 told
"""


def decisions(state: State, plan: Plan) -> list[Any]:
    """What was decided, by name: ids of policies differ between a server and a file."""
    return [
        ("grant", each.request_id, each.pool_id)
        if isinstance(each, Grant)
        else ("preempt", each.beneficiary_id, each.victims)
        for each in plan.decisions
    ]


@settings(max_examples=150)
@given(st.integers(0, 15), HISTORY, st.sampled_from([0, 3000, 8000, 40_000]))
# What a pass promises or stops after shares were published moves the clocks of starvation too.
@example(8, [*[(0, 0, 0, 0)] * 3, (0, 0, 0, 3), (4, 2, 0, 0), (10, 0, 0, 0)], 0)
@example(8, [(0, 0, 0, 3), (12, 0, 1, 1), (4, 2, 0, 0)], 0)
def test_a_snapshot_decides_as_its_original(shape: int, many: list[Command], later: int) -> None:
    history = History(world(shape))
    history.run(many)
    state, now = history.state, history.now
    shown = dump(state, now)
    again = load(json.loads(json.dumps(shown)))  # plain data, all of it
    assert ranked(dump(again, now)) == ranked(shown)
    plans = [decisions(each, decide(each, now + later)) for each in (state, again)]
    assert plans[0] == plans[1]
    assert ranked(dump(again, now + later)) == ranked(dump(state, now + later))


def test_in_the_middle_of_a_preemption_the_promise_is_kept() -> None:
    story = tell(STOPPING)
    again = load(dump(story.state, story.now))
    assert audit.check(again) == []
    assert again.requests["b1"].earmark is not None
    assert {each.request_id for each in again.allocations.values() if each.leaving} == {"r3", "r4"}
    assert again.allocations["r4.1"].told and not again.allocations["r3.1"].told
    assert again.allocations["r3.1"].taken_for == "b1"
    assert again.allocations["r3.1"].deadline == story.state.allocations["r3.1"].deadline
    assert not decide(again, story.now).changed


def test_twice_read_is_once_read() -> None:
    shown = dump(tell(STOPPING).state, 3000)
    once = dump(load(shown), 3000)
    assert dump(load(once), 3000) == once


def test_the_order_of_a_snapshot_does_not_depend_on_its_history() -> None:
    one = tell(STOPPING)
    shown = dump(one.state, one.now)
    assert [each["name"] for each in shown["pools"]] == ["gpus"]
    assert [each["component"] for each in shown["policies"]] == ["blue", "red"]
    assert [each["id"] for each in shown["running"]] == ["r1", "r2", "r3", "r4"]


@pytest.mark.parametrize(
    "more",
    {
        "a shrunk pool": "edit red limit 4\nedit blue limit 4\nedit pool gpus 4 -> stopping r1 r2",
        "a cancelled victim": "cancel r3 -> stopping r3",
        "a beneficiary that gave up": "cancel b1 -> running r3",
        "a lost holder": "after 30s -> lost r3 r4, stopping r1 r2",
        "a delayed retry": "r1 fails -> waiting r1, running r3",
        "a named pool": "blue submits b2 of 1 in gpus -> waiting b2",
    }.values(),
    ids=lambda each: each[:20],
)
def test_it_can_be_taken_at_any_moment(more: str) -> None:
    story = tell(STOPPING + "\n" + more)  # every line takes one and reads it back
    again = load(dump(story.state, story.now))
    assert not decide(again, story.now).changed


def test_a_cancelled_victim_is_cancelled_in_its_snapshot_too() -> None:
    story = tell(STOPPING + "\ncancel r3 -> stopping r3")
    again = load(dump(story.state, story.now))
    assert again.requests["r3"].cancelled and not again.requests["r4"].cancelled


def test_what_was_saved_keeps_its_place() -> None:
    """Under fair share it counts as a new start, also where it was saved at that very instant."""
    state = tell("""
        node n1 3 in gpus
        pool gpus nodes preset fair_share fair_share_update_period 0
          team red
        red runs r1..r2 of 1 checkpoint auto -> running r1 r2
        r1 r2 starts
        r1 keeps c1
        red runs r3 of 1 -> running r3
    """).state
    read = load(dump(state, state.now))
    assert _order(read) == _order(state) == ["r2", "r1", "r3"]


def _order(state: State) -> list[str]:
    held = sorted(state.ledgers["gpus"].holdings.values(), key=lambda each: each.index)
    return [state.allocations[each.id].request_id for each in held]

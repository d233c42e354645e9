"""Undoing leaves no trace, and neither does asking what would happen or a pass that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cede.engine import decide as deciding
from cede.engine.admin import edits
from cede.engine.audit import audit
from cede.engine.decide import decide
from cede.engine.explain.why import why
from cede.engine.fair.status import Starving
from cede.engine.lifecycle import commands
from cede.engine.shares.publish import hunger
from cede.engine.state.journal import Noted
from cede.engine.state.state import State
from cede.engine.state.trial import what_if, whole
from cede.model.subject import Subject
from cede.snapshot.writer import dump
from tests.engine.histories import HISTORY, Command, History, world
from tests.engine.traces import trace, untimed
from tests.scenario import tell
from tests.worlds.draw import KINDS
from tests.worlds.walk import Walk, walk

SHAPES = st.integers(0, 7)
WALK = st.builds(walk, st.sampled_from(sorted(KINDS)), st.integers(0, 999))
STEPS = st.lists(st.integers(0, 99), max_size=12)


def unchanged(state: State, old: Any) -> None:
    assert trace(state) == old
    assert untimed(state) == []


# Who is stopped for another is cancelled: it does not come back, and without that it does.
CANCELLED = [(0, 0, 2, 0), (0, 1, 3, 0), (10, 0, 0, 0)], [(5, 0, 0, 0)]


@settings(max_examples=150)
@given(SHAPES, HISTORY, HISTORY, st.booleans())
@example(0, *CANCELLED, True)
@example(0, *CANCELLED, False)
def test_whatever_happened_after_a_mark_is_undone(
    shape: int, before: list[Command], after: list[Command], passes: bool
) -> None:
    history = History(world(shape))
    history.run(before)
    state = history.state
    state.drain()
    old, mark = trace(state), state.mark()
    history.run(after, passes=passes)
    state.undo(mark)
    unchanged(state, old)
    assert audit.check(state) == []


def undone(walk: Walk, before: list[int], after: list[int]) -> None:
    walk.go(before)
    old, mark = trace(walk.state), walk.state.mark()
    walk.go(after)
    walk.state.undo(mark)
    unchanged(walk.state, old)


@settings(max_examples=150)
@given(WALK, STEPS, STEPS)
def test_whatever_happened_in_a_world_is_undone(
    walk: Walk, before: list[int], after: list[int]
) -> None:
    undone(walk, before, after)


def test_a_save_is_undone() -> None:
    """Where shares are fair it counts as a new start of the holding, and without it the old one."""
    undone(walk("mixed", 174), [0, 1, 1, 0, 0, 0, 0, 0], [0])


@settings(max_examples=150)
@given(WALK, STEPS, STEPS)
def test_trying_something_in_a_world_leaves_no_trace(
    walk: Walk, before: list[int], after: list[int]
) -> None:
    walk.go(before)
    old = trace(walk.state)
    with what_if(walk.state):
        walk.go(after)
    unchanged(walk.state, old)


FORGETFUL = (
    *("looks", "published", "published_at", "staged", "starving"),
    "order_versions",
)


@pytest.mark.parametrize("name", FORGETFUL)
def test_what_is_not_noted_is_found_missing(name: str) -> None:
    """A taking of a starving waiter on nodes moves all of these."""
    for seed in range(40):
        one = walk("fair on nodes", seed)
        values: Noted[Any] = getattr(one.state, name)
        values.__class__ = _Forgetful
        try:
            undone(one, [0, 0, 0], list(range(20)))
        except AssertionError:
            return
    raise AssertionError(f"that {name} is not undone was not seen")


class _Forgetful(Noted[Any]):
    def __setitem__(self, key: str, value: Any) -> None:
        self._values[key] = value

    def __delitem__(self, key: str) -> None:
        del self._values[key]


STEPS_OF_A_PASS = ("expire", "refresh", "score_queues", "grant_all", "preempt_all", "ask_to_save")


def failing(step: str) -> Any:
    """The step is done, and then there is a bug."""
    real: Callable[..., Any] = getattr(deciding, step)

    def fails(*given: Any) -> None:
        real(*given)
        raise ZeroDivisionError

    return patch.object(deciding, step, fails)


@settings(max_examples=150)
@given(WALK, STEPS, st.sampled_from(STEPS_OF_A_PASS), st.integers(0, 40))
def test_a_pass_that_fails_has_changed_nothing(
    walk: Walk, before: list[int], step: str, later: int
) -> None:
    walk.go(before)
    state = walk.state
    state.dirty |= dict.fromkeys(state.pools)
    old = trace(state)
    with failing(step), pytest.raises(ZeroDivisionError), whole(state):
        decide(state, state.now + later * 1000)
    unchanged(state, old)


def test_what_was_due_is_still_due_after_a_pass_that_failed() -> None:
    state = tell("""
        pool gpus 4
        team red limit 4
        red submits r of 4 lease 20s -> running r
    """).state
    broken = patch.object(deciding, "expire", side_effect=ZeroDivisionError)
    with broken, pytest.raises(ZeroDivisionError), whole(state):
        decide(state, 60_000)
    decide(state, 60_001)
    assert state.requests["r"].ended


@settings(max_examples=150)
@given(SHAPES, HISTORY, st.integers(0, 60))
def test_asking_what_would_happen_leaves_no_trace(
    shape: int, before: list[Command], later: int
) -> None:
    one, other = History(world(shape)), History(world(shape))
    one.run(before)
    other.run(before)
    for history in (one, other):
        history.state.drain()
    old = trace(one.state)
    with what_if(one.state):
        decide(one.state, one.now + later * 1000)
    for request_id in list(one.state.requests):
        why(one.state, request_id, one.now + later * 1000)
    unchanged(one.state, old)
    assert audit.check(one.state) == []
    for then in (one.now + later * 1000, one.now + 100_000):
        assert decide(one.state, then) == decide(other.state, then)
        assert dump(one.state, then) == dump(other.state, then)


@settings(max_examples=150)
@given(SHAPES, HISTORY)
def test_every_state_of_every_history_is_sound(shape: int, many: list[Command]) -> None:
    history = History(world(shape))
    for each in many:
        history.run([each])
        assert audit.check(history.state) == []
        for _ in range(5):  # a victim that goes on may find its lease over: then that is due
            plan = decide(history.state, history.now)
            if plan.next_timer is None or plan.next_timer > history.now:
                break
        assert not decide(history.state, history.now).changed  # a pass ends at rest
        history.state.drain()


def test_asking_why_does_not_lose_a_timer() -> None:
    story = tell("""
        pool gpus 4 reclaim_min_run 30s
        team red limit 4
        team own reserved 4 limit 4
        red submits r of 4 -> running r
        own submits o of 4 -> waiting o (min_run)
    """)
    assert story.state.timers.next() == 30_000
    why(story.state, "o", 30_005)  # after it was due, before the pass
    assert [each.beneficiary_id for each in decide(story.state, 30_005).decisions] == ["o"]


def test_a_refused_command_writes_nothing() -> None:
    state = world()
    state.drain()
    mark = state.mark()
    history = History(state)
    history.do((11, 0, 9, 0 + 1))  # a limit above the capacity
    assert history.refused
    state.undo(mark)
    changes = state.drain()
    assert not changes.events
    assert not changes.policies.inserted and not changes.policies.deleted


def test_whoever_starves_starves_as_much_after_something_was_tried() -> None:
    """Shares were computed for the trial as well; what they were is not what they are."""
    state = State()
    settings = {"fair_share_starvation_timeout": 10}
    edits.create_pool(
        state, id="p", name="p", capacity={"gpu": 2}, preset="fair_share", settings=settings
    )
    for team in ("a", "b"):
        edits.attach_policy(state, id=team, pool_id="p", subject=Subject("team", team))
    for request_id, team in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("b3", "b")):
        submission = commands.Submission(
            id=request_id, subject=Subject("team", team), amounts={"gpu": 1}, lease=None
        )
        commands.submit(state, submission, 1_000)
        decide(state, 1_000)
    decide(state, 2_000)
    decide(state, 13_000)
    ledger, waiter = state.ledgers["p"], state.requests["b3"]
    before = hunger(state, ledger, waiter, "b")
    assert before is Starving.STARVING
    with what_if(state):
        commands.cancel(state, "b3", 13_000, actor="somebody")
        decide(state, 14_000)
    assert hunger(state, ledger, waiter, "b") is before

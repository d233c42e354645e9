"""Undoing leaves no trace, and neither does asking what would happen."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cede.engine import audit, commands, edits
from cede.engine.decide import decide
from cede.engine.explain import why
from cede.engine.fair.status import Starving
from cede.engine.fairness import hunger
from cede.engine.snapshot import dump
from cede.engine.state import State
from cede.model.subject import Subject
from tests.engine.histories import HISTORY, Command, History, world
from tests.scenario import tell

SHAPES = st.integers(0, 7)


def everything(state: State) -> dict[str, Any]:
    """All that a later decision could depend on, in an order of its own."""
    return {
        "dump": dump(state, state.now),
        "requests": dict(sorted(state.requests.items())),
        "allocations": dict(sorted(state.allocations.items())),
        "lanes": {
            pool_id: {key: list(lane) for key, lane in sorted(books.lanes.items()) if len(lane)}
            for pool_id, books in sorted(state.books.items())
        },
        "delayed": sorted(state.delayed),
        "untold": {key: sorted(value) for key, value in sorted(state.untold.items())},
        "several": state.several,
        "withheld": {pool_id: dict(books.withheld) for pool_id, books in state.books.items()},
        "index": state.index,
        "timer": state.timers.next(),
    }


@settings(max_examples=150)
@given(SHAPES, HISTORY, HISTORY, st.booleans())
def test_whatever_happened_after_a_mark_is_undone(
    shape: int, before: list[Command], after: list[Command], passes: bool
) -> None:
    history = History(world(shape))
    history.run(before)
    state = history.state
    state.drain()
    old, now = everything(state), history.now
    mark = state.mark()
    history.run([each for each in after if each[0] != 4], passes=passes)
    state.undo(mark)
    state.now = now
    assert everything(state) == old
    assert audit.check(state) == []


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
    old = everything(one.state)
    with one.state.what_if():
        decide(one.state, one.now + later * 1000)
    for request_id in list(one.state.requests):
        why(one.state, request_id, one.now + later * 1000)
    one.state.now = other.state.now
    assert everything(one.state) == old
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
    books, waiter = state.books["p"], state.requests["b3"]
    before = hunger(state, books, waiter, "b")
    assert before is Starving.STARVING
    with state.what_if():
        commands.cancel(state, "b3", 13_000, actor="somebody")
        decide(state, 14_000)
    assert hunger(state, books, waiter, "b") is before

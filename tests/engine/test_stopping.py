"""Stop row by row of document 004, and over any sequence of events within its bound (L5)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cede.engine.lifecycle import stop_sequence as stop_progress
from cede.model import bounds
from cede.model.allocation import Allocation, Member
from cede.model.lifecycle import AllocationState
from cede.model.settings import Settings
from cede.model.stopping import Checkpoint, StopPolicy

MINUTE = 60_000
GRACE = Settings().grace
AUTO = StopPolicy(Checkpoint.AUTO)
RUNNING = Allocation(
    "r.1", "r", "p", "p/red", {"gpu": 1}, True, 1, 2, 0,
    state=AllocationState.RUNNING, started_at=0, members=(Member(0, "n1"),),
)  # fmt: skip


def hinted(stop_policy: StopPolicy = AUTO, now: int = 0) -> Allocation:
    return stop_progress.begin(RUNNING, stop_policy, now, hint=7, heard_by=0, grace=GRACE)


def until(allocation: Allocation) -> int:
    assert allocation.stop_progress is not None
    return allocation.stop_progress.until


def over(allocation: Allocation, stop_policy: StopPolicy = AUTO) -> Allocation:
    return stop_progress.over(allocation, stop_policy, until(allocation), heard_by=0, grace=GRACE)


def test_the_times_of_document_004_are_the_defaults() -> None:
    assert AUTO.timeout == 10 * MINUTE
    assert AUTO.deferral_max == 5 * MINUTE
    assert GRACE == 30_000
    assert StopPolicy().checkpoint is Checkpoint.NONE


def test_work_that_cannot_save_itself_gets_the_signal_at_once() -> None:
    stopped = hinted(StopPolicy(), now=5)
    assert stopped.state is AllocationState.STOPPING and stopped.stop_progress is None
    assert stopped.deadline == 5 + GRACE + bounds.STOP_PROGRESS_MARGIN


def test_auto_and_manual_are_asked_first() -> None:
    for checkpoint in (Checkpoint.AUTO, Checkpoint.MANUAL):
        asked = hinted(StopPolicy(checkpoint), now=5)
        assert asked.state is AllocationState.CHECKPOINTING
        assert until(asked) == 5 + 10 * MINUTE and not asked.told


def test_one_that_has_not_started_has_nothing_to_save() -> None:
    for state in (AllocationState.GRANTED, AllocationState.STARTING):
        early = Allocation("r.1", "r", "p", "p/red", {"gpu": 1}, True, 1, 2, 0, state=state)
        asked = stop_progress.begin(early, AUTO, 0, hint=7, heard_by=0, grace=GRACE)
        assert asked.state is AllocationState.STOPPING


def test_responds_but_slow_is_extended_by_half_once() -> None:
    slow = over(stop_progress.answered(hinted()))
    assert slow.state is AllocationState.CHECKPOINTING and until(slow) == 15 * MINUTE
    done = over(stop_progress.answered(slow))
    assert done.state is AllocationState.STOPPING and done.stop_progress is not None
    assert done.stop_progress.failed and not done.stop_progress.saved


def test_unresponsive_is_stopped_and_has_failed() -> None:
    done = over(hinted())
    assert done.state is AllocationState.STOPPING
    assert done.stop_progress is not None and done.stop_progress.failed
    assert done.deadline == 10 * MINUTE + GRACE + bounds.STOP_PROGRESS_MARGIN


def test_a_deferral_is_granted_up_to_five_minutes_in_all() -> None:
    asked, granted = stop_progress.deferred(hinted(), AUTO, 4 * MINUTE)
    assert (granted, until(asked)) == (4 * MINUTE, 14 * MINUTE)
    asked, granted = stop_progress.deferred(asked, AUTO, 4 * MINUTE)
    assert (granted, until(asked)) == (1 * MINUTE, 15 * MINUTE)
    again, granted = stop_progress.deferred(asked, AUTO, 4 * MINUTE)
    assert (granted, until(again)) == (0, 15 * MINUTE)
    assert stop_progress.deferred(asked, AUTO, -MINUTE)[1] == 0


def test_saved_is_stopped_and_has_not_failed() -> None:
    done = stop_progress.saved(hinted(), MINUTE, heard_by=0, grace=GRACE)
    assert done.state is AllocationState.STOPPING and done.stop_progress is not None
    assert done.stop_progress.saved and not done.stop_progress.failed
    assert done.deadline == MINUTE + GRACE + bounds.STOP_PROGRESS_MARGIN


def test_without_a_hint_nothing_is_heard() -> None:
    assert stop_progress.answered(RUNNING) is RUNNING
    assert stop_progress.deferred(RUNNING, AUTO, MINUTE) == (RUNNING, 0)


def test_a_holder_that_hears_late_has_its_grace_from_then_on() -> None:
    late = stop_progress.stop(RUNNING, 0, heard_by=MINUTE, grace=GRACE)
    assert late.deadline == MINUTE + GRACE + bounds.STOP_PROGRESS_MARGIN


EVENTS = st.lists(
    st.tuples(st.sampled_from(["answers", "defers", "waits"]), st.integers(0, 20 * MINUTE)),
    max_size=30,
)


@given(st.integers(0, 20 * MINUTE), st.integers(0, 10 * MINUTE), EVENTS)
def test_every_stop_policy_is_over_in_time(
    timeout: int, deferral_max: int, events: list[tuple[str, int]]
) -> None:
    """L5: 1.5 x time-out + deferrals + grace + 5 s, whatever the application says and when."""
    stop_policy = StopPolicy(Checkpoint.AUTO, timeout=timeout, deferral_max=deferral_max)
    asked, now, at = hinted(stop_policy), 0, 0
    extensions = 0
    first_deadline = asked.deadline
    assert first_deadline is not None
    while asked.state is AllocationState.CHECKPOINTING:
        kind, number = events[at] if at < len(events) else ("waits", until(asked) - now)
        at += 1
        if kind == "answers":
            asked = stop_progress.answered(asked)
        elif kind == "defers":
            asked, granted = stop_progress.deferred(asked, stop_policy, number)
            assert 0 <= granted <= number
        else:
            now = min(now + number, until(asked))
        if now >= until(asked):
            before = until(asked)
            asked = stop_progress.over(asked, stop_policy, now, heard_by=0, grace=GRACE)
            extensions += until(asked) > before or asked.state is AllocationState.CHECKPOINTING
    assert extensions <= 1
    longest = timeout + timeout // 2 + deferral_max
    assert now <= longest
    assert asked.deadline is not None
    assert asked.deadline <= longest + GRACE + bounds.STOP_PROGRESS_MARGIN == first_deadline
    assert asked.stop_progress is not None and asked.stop_progress.deferred <= deferral_max

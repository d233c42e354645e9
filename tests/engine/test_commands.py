"""What people and programs may do to requests, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from cede.engine.admin import edits
from cede.engine.decide import decide
from cede.engine.lifecycle import commands
from cede.engine.state.state import State
from cede.model.errors import Conflict, NotFound, Refused
from cede.model.lifecycle import AllocationState
from cede.model.reason import Code
from cede.model.subject import Subject
from cede.model.work import Work
from tests.scenario import tell

RED = Subject("team", "red")

HOLDER = """
    pool gpus 2
    team red limit 2 priority 10
    red submits r of 2 retries 1 lease 60s -> running r
    red submits w of 2 lease 60s -> waiting w
"""


def _submission(**given: Any) -> commands.Submission:
    return commands.Submission(**{"id": "r", "subject": RED, "amounts": {"gpu": 1}, **given})


def _pool(state: State, name: str = "gpus") -> None:
    edits.create_pool(state, id=name, name=name, capacity={"gpu": 2})


def test_a_subject_without_a_policy_runs_untracked() -> None:
    state = State()
    _pool(state)
    answer = commands.submit(state, _submission(), 0)
    assert isinstance(answer, commands.Untracked) and answer.reason.code is Code.UNTRACKED
    assert not state.requests


@pytest.mark.parametrize("given", [{"unpooled": "refuse"}, {"pool_id": "gpus"}])
def test_unless_it_must_be_tracked(given: dict[str, Any]) -> None:
    state = State()
    _pool(state)
    with pytest.raises(Refused) as caught:
        commands.submit(state, _submission(**given), 0)
    assert caught.value.reason.code is Code.NO_POLICY
    assert "team:red" in str(caught.value)


def test_a_policy_elsewhere_does_not_open_the_pool_that_is_named() -> None:
    state = State()
    _pool(state)
    _pool(state, "other")
    edits.attach_policy(state, id="p", pool_id="other", subject=RED)
    with pytest.raises(Refused):
        commands.submit(state, _submission(pool_id="gpus"), 0)


def test_a_rejected_request_is_kept_once_with_its_reason() -> None:
    state = State()
    _pool(state)
    edits.attach_policy(state, id="p", pool_id="gpus", subject=RED)
    commands.submit(state, _submission(amounts={"gpu": 3}), 0)
    changes = state.drain()
    assert [each.status for each in changes.requests.inserted] == ["rejected"]
    assert [each.kind for each in changes.events][-1] == "rejected"
    assert not state.requests


@pytest.mark.parametrize("act", ["renew", "release"])
def test_a_report_of_another_attempt_changes_nothing(act: str) -> None:
    story = tell(HOLDER + "\nr fails -> running r, attempt r 2")
    with pytest.raises(Conflict) as caught:
        getattr(commands, act)(story.state, "r", story.now, attempt=1)
    assert caught.value.code == "stale_fence"
    getattr(commands, act)(story.state, "r", story.now, attempt=2)


@pytest.mark.parametrize("act", ["renew", "release", "cancel"])
def test_who_is_unknown_or_has_ended_is_not_found(act: str) -> None:
    story = tell(HOLDER + "\nw silent\nr done -> running w")
    more = {"actor": "a"} if act == "cancel" else {}
    for name in ("r", "nobody"):
        with pytest.raises(NotFound):
            getattr(commands, act)(story.state, name, story.now, **more)


def test_what_ended_in_this_transaction_has_ended() -> None:
    state = tell(HOLDER).state
    commands.release(state, "r", 0)
    with pytest.raises(Conflict) as caught:
        commands.release(state, "r", 0)
    assert caught.value.code == "already_ended"


def test_only_who_was_asked_to_stop_can_have_stopped() -> None:
    state = tell(HOLDER).state
    with pytest.raises(Conflict) as caught:
        commands.release(state, "r", 0, outcome="stopped")
    assert caught.value.code == "not_preempting"


def test_releasing_a_waiter_cancels_it() -> None:
    state = tell(HOLDER).state
    assert commands.release(state, "w", 0).status == "cancelled"


@pytest.mark.parametrize("held", ["r", "w"])
def test_only_a_grant_on_a_node_is_handed_over(held: str) -> None:
    state = tell(HOLDER).state
    with pytest.raises(Conflict) as caught:
        commands.hand_over(state, held, Work(("true",)), 0, attempt=1)
    assert caught.value.code == "no_node"
    assert state.requests[held].work is None


def test_the_first_renewal_that_runs_starts_the_clock() -> None:
    story = tell(HOLDER)
    commands.renew(story.state, "r", 7000)
    assert story.state.allocations["r.1"].state is AllocationState.GRANTED
    commands.renew(story.state, "r", 9000, running=True)
    commands.renew(story.state, "r", 12_000, running=True)
    allocation = story.state.allocations["r.1"]
    assert (allocation.state, allocation.started_at) == (AllocationState.RUNNING, 9000)
    assert allocation.lease_until == 72_000


def test_renewing_a_victim_is_the_notice() -> None:
    state = tell(HOLDER).state
    commands.cancel(state, "r", 0, actor="me")
    deadline = state.allocations["r.1"].deadline
    assert not state.allocations["r.1"].told
    assert commands.renew(state, "r", 5000).status == "preempting"
    assert state.allocations["r.1"].told
    assert state.allocations["r.1"].deadline == deadline


def test_the_deadline_covers_lease_grace_and_margin() -> None:
    state = tell(HOLDER).state
    commands.cancel(state, "r", 0, actor="me")
    assert state.allocations["r.1"].deadline == 60_000 + 30_000 + 5000


def test_exit_codes_are_told() -> None:
    state = tell(HOLDER).state
    commands.release(state, "r", 0, outcome="failed", exit_code=137)
    reason = state.requests["r"].reason
    assert reason is not None and "137" in reason.text


def test_events_are_numbered_without_gap_in_their_own_order() -> None:
    story = tell(HOLDER + "\nr done -> running w")
    indexes = [each.index for each in story.events]
    assert indexes == sorted(set(indexes))
    assert [each.kind for each in story.events if each.request_id == "r"] == [
        "submitted",
        "granted",
        "released",
    ]


def test_only_what_changed_is_written() -> None:
    story = tell(HOLDER)
    assert story.state.drain().empty
    commands.renew(story.state, "w", 1000)
    decide(story.state, 1000)
    changes = story.state.drain()
    assert [each.id for each in changes.requests.updated] == ["w"]
    assert not changes.allocations.updated and not changes.events

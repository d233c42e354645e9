"""How long work survives without its server: one number for both sides, and never less than was
promised.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from cede.engine.admin import edits, fleet
from cede.engine.decide import decide
from cede.engine.lifecycle import commands
from cede.engine.state.due import gone_at
from cede.engine.state.state import State
from cede.model import bounds
from cede.model.bounds import MINUTE, SECOND
from cede.model.errors import Invalid
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.node import NodeState
from cede.model.request import OnSilence
from cede.model.subject import Subject
from cede.model.work import Work

RED = Subject("team", "red")
DRIFT = bounds.LEASE_DRIFT_DIVISOR


def world(beside_server: bool = False, **settings: object) -> State:
    state = State()
    register(state, beside_server=beside_server)
    edits.create_pool(state, id="p", name="p", nodes={"pool": "p"}, settings=settings)
    edits.attach_policy(state, id="red", pool_id="p", subject=RED)
    return state


def register(state: State, now: int = 0, beside_server: bool = False, **more: object) -> None:
    fleet.register(
        state,
        id="n1",
        name="n1",
        amounts={"gpu": 2},
        labels={"pool": "p"},
        boot="b1",
        beside_server=beside_server,
        now=now,
        caller=fleet.Caller(own=True),
        **more,  # type: ignore[arg-type]
    )


def submit(state: State, silence: OnSilence | None) -> None:
    work = Work(("train",))
    given = commands.Submission(
        id="r", subject=RED, amounts={"gpu": 2}, lease=None, work=work, on_silence=silence
    )
    commands.submit(state, given, state.now)
    decide(state, state.now)


def over(lease: int) -> int:
    """When the server believes that a lease which began at 0 is over, and its work dead."""
    return lease + lease // DRIFT + bounds.LEASE_MARGIN + bounds.KILL_GRACE


def test_a_silent_node_is_given_up_after_its_lease_and_not_before() -> None:
    for lease in (60 * SECOND, 10 * MINUTE):
        state = world(node_lease=lease // SECOND)
        submit(state, OnSilence.STOP)
        # The longer one was promised first: a node that joins has the default.
        at = gone_at(state.nodes["n1"], 0)
        assert at >= over(lease)
        decide(state, at - 1)
        assert state.nodes["n1"].state is NodeState.DEGRADED
        assert state.requests["r"].attempt == 1
        decide(state, at)
        assert state.nodes["n1"].state is NodeState.DOWN
        assert state.requests["r"].attempt == 2


def test_a_shorter_lease_counts_when_the_longer_one_is_over() -> None:
    state = world()
    state.now = 100 * SECOND
    fleet.heard(state, "n1", state.now)
    edits.update_pool(state, "p", settings={"node_lease": 60})
    node = state.nodes["n1"]
    assert node.lease == 60 * SECOND
    assert gone_at(node, 100 * SECOND) > 100 * SECOND + 10 * MINUTE
    later = 100 * SECOND + 11 * MINUTE
    assert gone_at(node, later) == later + over(60 * SECOND)


def test_a_longer_lease_counts_at_once() -> None:
    state = world()
    edits.update_pool(state, "p", settings={"node_lease": 3600})
    assert gone_at(state.nodes["n1"], 0) == over(60 * MINUTE)


def test_a_lease_outlasts_three_heartbeats_whatever_is_set() -> None:
    state = world(node_lease=1)
    assert state.nodes["n1"].lease == 3 * bounds.HEARTBEAT_DEFAULT


@pytest.mark.parametrize("wrong", [0, -1, 0.5, 100_000, "x", True, None, float("nan")])
def test_what_is_no_lease_is_refused(wrong: object) -> None:
    state = world()
    with pytest.raises(Invalid, match="node_lease"):
        edits.update_pool(state, "p", settings={"node_lease": wrong})


@pytest.mark.parametrize(
    ("silence", "beside", "kept"),
    [
        (None, True, True),
        (None, False, False),
        (OnSilence.STOP, True, False),
        (OnSilence.KEEP, False, True),
    ],
)
def test_beside_the_only_server_work_is_kept_unless_it_says_otherwise(
    silence: OnSilence | None, beside: bool, kept: bool
) -> None:
    state = world(beside_server=beside)
    submit(state, silence)
    decide(state, gone_at(state.nodes["n1"], 0))
    held = state.allocation_of("r")
    if kept:
        assert held is not None and held.state is AllocationState.LOST
    else:
        assert held is None and state.requests["r"].status is RequestStatus.QUEUED


def test_what_was_promised_to_be_kept_is_kept_while_it_runs() -> None:
    state = world(beside_server=True)
    submit(state, None)
    register(state, now=SECOND, beside_server=False)
    assert state.nodes["n1"].beside_server
    commands.cancel(state, "r", SECOND, actor="somebody")
    state.put(replace(state.requests["r"], status=RequestStatus.CANCELLED))
    held = state.allocation_of("r")
    assert held is not None
    state.put(replace(held, state=AllocationState.ENDED))
    register(state, now=2 * SECOND, beside_server=False)
    assert not state.nodes["n1"].beside_server


def test_a_server_that_begins_gives_clients_their_whole_lease_anew() -> None:
    state = State()
    edits.create_pool(state, id="c", name="c", capacity={"gpu": 1})
    edits.attach_policy(state, id="red", pool_id="c", subject=RED)
    for name in ("holder", "waiter"):
        given = commands.Submission(id=name, subject=RED, amounts={"gpu": 1}, lease=3 * SECOND)
        commands.submit(state, given, 0)
        decide(state, 0)
    tables = (state.pools, state.policies, state.requests, state.allocations)
    stored = [each for table in tables for each in table.values()]
    away = 100 * SECOND
    again = State()
    again.load(stored, index=state.index, now=away)
    again.since = away
    decide(again, away + 3 * SECOND)
    assert again.requests["holder"].status is RequestStatus.ALLOCATED
    assert again.requests["waiter"].status is RequestStatus.QUEUED
    decide(again, away + 4 * SECOND)
    assert again.requests["holder"].status is RequestStatus.FAILED
    assert again.requests["waiter"].ended

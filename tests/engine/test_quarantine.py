"""After a restore nothing is granted until what may be held unknown is surely over."""

from __future__ import annotations

import pytest

from cede.engine.admin import edits, fleet, quarantine
from cede.engine.decide import decide
from cede.engine.explain.why import why
from cede.engine.lifecycle import commands, reports
from cede.engine.state.state import State
from cede.model import bounds
from cede.model.errors import Conflict
from cede.model.lifecycle import RequestStatus
from cede.model.subject import Subject
from cede.model.work import Work
from tests.engine.test_fleet import RED, register

UNTIL = 10 * bounds.MINUTE


def world(*nodes: str) -> State:
    state = State()
    for name in nodes:
        register(state, name, 0)
    edits.create_pool(state, id="gpus", name="gpus", nodes={"pool": "gpus"})
    edits.attach_policy(state, id="red", pool_id="gpus", subject=RED)
    return state


def submit(state: State, name: str, gpus: int, subject: Subject = RED) -> None:
    given = commands.Submission(name, subject, {"gpu": gpus}, lease=None, work=Work(("train",)))
    commands.submit(state, given, state.now)


def holds(state: State, request_id: str) -> bool:
    return state.requests[request_id].status is RequestStatus.ALLOCATED


def said(state: State, request_id: str) -> str:
    reason = why(state, request_id, state.now)["reason"]
    assert reason["code"] == "restored", reason
    return str(reason["text"])


def at(state: State, now: int, *nodes: str) -> None:
    """Let time pass while these nodes are heard of."""
    for name in nodes:
        fleet.heard(state, name, now)
    decide(state, now)


def test_a_pool_grants_nothing_until_nodes_have_spoken_and_leases_are_over() -> None:
    state = world("n1", "n2")
    quarantine.begin(state, 0, UNTIL)
    submit(state, "a", 1)
    decide(state, 0)
    assert "n1, n2" in said(state, "a") and "600 s" in said(state, "a")
    quarantine.spoken(state, "n1", 0)
    quarantine.spoken(state, "n2", 0)
    at(state, UNTIL - 1, "n1", "n2")
    assert not holds(state, "a") and "n1" not in said(state, "a")
    at(state, UNTIL, "n1", "n2")
    assert holds(state, "a")


def test_the_end_of_the_last_lease_is_a_timer() -> None:
    state = world()
    quarantine.begin(state, 0, UNTIL)
    assert decide(state, 0).next_timer == UNTIL


def test_a_silent_node_keeps_the_quarantine_whatever_the_time() -> None:
    state = world("n1", "n2")
    quarantine.begin(state, 0, UNTIL)
    submit(state, "a", 1)
    quarantine.spoken(state, "n1", 0)
    at(state, 3 * UNTIL, "n1")
    assert not holds(state, "a") and "n2" in said(state, "a")


def test_an_operator_enables_a_pool_and_only_nodes_that_spoke_take_work() -> None:
    state = world("n1", "n2")
    quarantine.begin(state, 0, UNTIL)
    submit(state, "a", 2)
    submit(state, "b", 2)
    quarantine.spoken(state, "n1", 0)
    quarantine.enable_pool(state, "gpus", 0)
    decide(state, 0)
    assert holds(state, "a") and not holds(state, "b")
    assert why(state, "b", 0)["reason"]["code"] == "nodes_out"
    fleet.enable(state, "n2", 0)
    decide(state, 0)
    assert holds(state, "b")
    with pytest.raises(Conflict, match="not in quarantine"):
        quarantine.enable_pool(state, "gpus", 0)


def test_nobody_is_stopped_for_a_waiter_in_quarantine() -> None:
    state = world("n1")
    blue = Subject("team", "blue")
    edits.attach_policy(
        state, id="blue", pool_id="gpus", subject=blue, priority=9, reserved={"gpu": 2}
    )
    submit(state, "a", 2)
    decide(state, 0)
    quarantine.begin(state, 0, UNTIL)
    submit(state, "b", 2, blue)
    decide(state, 0)
    assert holds(state, "a") and not holds(state, "b")
    assert said(state, "b")


def test_a_drained_node_that_an_operator_enables_stays_drained() -> None:
    state = world("n1")
    fleet.drain(state, "n1", 0)
    quarantine.begin(state, 0, UNTIL)
    assert fleet.enable(state, "n1", 0).state.value == "drained"
    assert not state.nodes["n1"].quarantined


def test_a_node_that_joins_meanwhile_must_speak_as_well() -> None:
    state = world("n1")
    quarantine.begin(state, 0, UNTIL)
    register(state, "n2", 0)
    assert state.nodes["n2"].quarantined


def test_work_that_another_history_stopped_waits_again_and_uses_up_no_retry() -> None:
    state = world("n1")
    submit(state, "a", 1)
    decide(state, 0)
    [allocation] = state.allocations.values()
    ended = reports.Report(allocation.id, 1, 0, "ended", exit_code=143, cause="stopped")
    assert reports.take(state, "n1", ended, 1)
    request = state.requests["a"]
    assert request.waiting and request.attempt == 2 and request.lost_count == 1

"""Nodes of a bridge: what others hold there, devices that a cluster chooses, ends that it makes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cede.engine.admin import fleet
from cede.engine.audit import audit
from cede.engine.decide import decide
from cede.engine.explain.why import why
from cede.engine.lifecycle import reports
from cede.engine.lifecycle.reports import Report
from cede.engine.state.due import keeps
from cede.engine.state.state import State
from cede.model.errors import Conflict
from tests.scenario import Story, tell

STORY = """
    node n1..n2 4 in gpus
    pool gpus nodes
    team red priority 1
"""


def bridged(more: str = "") -> State:
    story = tell(STORY)
    for node in list(story.state.nodes.values()):
        story.state.put(replace(node, bridge="slurm", devices={}))
    for line in more.strip().splitlines():
        story.line(0, line.strip())
    return story.state


def node_id(state: State, name: str) -> str:
    return fleet.find_node(state, name).id


def others(state: State, name: str, amount: int) -> None:
    fleet.others_hold(state, node_id(state, name), {"gpu": amount} if amount else {}, "job 1", 0)
    decide(state, 0)
    assert audit.check(state) == []


def test_what_others_hold_lowers_what_is_free_and_not_the_capacity() -> None:
    state = bridged("red runs a of 4 -> running a")
    others(state, "n2", 3)
    assert state.pools["gpus"].capacity["gpu"] == 8
    assert state.inventories["gpus"].free["gpu"] == 1
    # Others were faster where something is granted already: nothing is missing elsewhere for it.
    others(state, "n1", 4)
    assert state.inventories["gpus"].free["gpu"] == 1
    others(state, "n2", 0)
    assert state.inventories["gpus"].free["gpu"] == 4


def test_a_waiter_is_told_who_has_it_and_starts_when_it_is_free() -> None:
    state = bridged()
    others(state, "n1", 2)
    others(state, "n2", 1)
    waits = Story(state=state, pool="gpus")
    waits.line(0, "red runs w of 4 -> waiting w")
    reason = why(state, "w", 0)["reason"]
    assert reason["code"] == "held_outside" and "job 1" in reason["text"]
    others(state, "n1", 0)
    assert state.allocation_of("w") is not None


def test_work_outlives_silence_whatever_it_asked_for() -> None:
    state = bridged("red runs a of 4 -> running a")
    request = state.requests["a"]
    assert keeps(state.nodes[node_id(state, "n1")], request)


def test_devices_are_those_that_the_cluster_reports() -> None:
    state = bridged("red runs a of 2 -> running a\nred runs b of 2 -> running b")
    decide(state, 0)
    a, b = (state.allocation_of(each) for each in "ab")
    assert a is not None and b is not None
    at = a.members[0].node_id
    assert b.members[0].node_id == at

    def started(allocation: str, *names: str) -> dict[str, tuple[str, ...]]:
        report = Report(allocation, 1, 0, "started", devices={"gpu": names})
        assert reports.take(state, at, report, 0)
        assert audit.check(state) == []
        return dict(state.allocations[allocation].members[0].devices)

    assert started(a.id, "0", "1") == {"gpu": ("0", "1")}
    assert started(b.id, "1", "2") == {}  # one of them is held
    assert started(b.id, "2") == {}  # too few
    assert started(b.id, "2", "2") == {}  # twice the same
    assert started(b.id, "2", "3") == {"gpu": ("2", "3")}


@pytest.mark.parametrize(
    ("cause", "retries", "status", "lost"),
    [
        ("cluster_busy", 0, "queued", 0),
        ("cluster_failed", 0, "queued", 1),
        ("cluster_ended", 1, "queued", 0),
    ],
)
def test_ends_that_a_cluster_makes(cause: str, retries: int, status: str, lost: int) -> None:
    state = bridged(f"red runs a of 2 retries {retries} -> running a")
    allocation = state.allocation_of("a")
    assert allocation is not None
    at = allocation.members[0].node_id
    reports.take(state, at, Report(allocation.id, 1, 0, "ended", None, cause, text="TIMEOUT"), 0)
    request = state.requests["a"]
    assert (str(request.status), request.attempt, request.lost_count) == (status, 2, lost)
    assert request.reason is not None and "TIMEOUT" in request.reason.text
    assert state.nodes[at].failures == 0
    assert audit.check(state) == []


def test_without_retries_what_a_cluster_was_told_to_end_has_failed() -> None:
    state = bridged("red runs a of 2 -> running a")
    allocation = state.allocation_of("a")
    assert allocation is not None
    at = allocation.members[0].node_id
    report = Report(allocation.id, 1, 0, "ended", None, "cluster_ended", text="TIMEOUT")
    reports.take(state, at, report, 0)
    assert "a" not in state.requests or str(state.requests["a"].status) == "failed"


def test_an_agent_does_not_take_a_node_from_a_bridge() -> None:
    state = bridged()
    with pytest.raises(Conflict, match="bridge slurm speaks for node n1"):
        fleet.register(state, id="x", name="n1", amounts={"gpu": 4}, now=0)

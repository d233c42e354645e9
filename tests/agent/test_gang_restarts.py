"""Gangs whose tasks save at different steps, leave one by one, or lose a node: they never fail for
it, and all tasks of an attempt go on from one checkpoint.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.agent.cluster import Agent
from tests.agent.record import NONE, Start
from tests.agent.stepping import PAIR, SAVED, Work, holds, pair, runs_elsewhere

pytestmark = pytest.mark.system

DIFFERING = Path(__file__).parent / "programs" / "differing.py"
GANG = {**PAIR, "tasks": 2, "per_node": 1, "gpus": 1}


def preempt_gang(work: Work) -> None:
    for node in ("p1", "p2"):
        work.preempt(node, gpus=1)


@pytest.mark.parametrize("folders", ["shared", "unshared"])
def test_a_gang_saves_at_one_step_and_resumes_from_it(
    work: Work, tmp_path: Path, folders: str
) -> None:
    """Its tasks are not equally fast: whenever it is asked they are at different steps."""
    shared = ("--checkpoints", str(tmp_path / "all")) if folders == "shared" else ()
    pair(work.cluster, *shared)
    work.submit("--leave", str(SAVED), "--drift", "0.5", **GANG).until_it_runs(1, 0, 1)
    # They have drifted apart.
    work.until(lambda: len(work.read(0).steps) >= len(work.read(1).steps) + 10)
    preempt_gang(work)
    work.until_suspended()
    work.until_it_runs(2, 0, 1)
    first, second = (work.read(task).start(2) for task in (0, 1))
    assert first is not None and second is not None
    assert first.resume == second.resume != NONE
    work.ends_well()


def gang_starts(work: Work, attempt: int) -> list[Start]:
    """The starts of both tasks."""

    def found() -> list[Start]:
        assert work.get()["status"] != "failed", work.cluster.story(work.id)
        starts = [work.read(task).start(attempt) for task in (0, 1)]
        return [each for each in starts if each is not None]

    work.until(lambda: len(found()) == 2)
    return found()


def test_each_task_of_a_gang_goes_back_to_a_folder_that_has_its_own_checkpoint(
    work: Work, tmp_path: Path
) -> None:
    """One task saved into a folder that two nodes share, the other into one that its node has for
    itself: with the two nodes alone the gang could not resume.
    """
    cluster, label = work.cluster, ("--allow-root-jobs", "--label", "for=pair")
    sharing = (*label, "--checkpoints", str(tmp_path / "all"))
    cluster.agent("p1", 1, *sharing)
    cluster.agent("alone", 1, *label)
    work.submit(program=DIFFERING, **GANG)
    nodes = {each.node for each in gang_starts(work, 1)}
    assert nodes == {"p1", "alone"}
    cluster.agent("p2", 1, *sharing)
    go = holds(work, "alone")
    work.until_suspended()
    runs_elsewhere(work, "p2", gpus=0)
    assert work.get()["status"] == "suspended"
    go.touch()
    assert {each.resume for each in gang_starts(work, 2)} == {"000010-x"}
    (work.record / "go").touch()
    assert cluster.ended(work.id)["status"] == "released"


def test_a_gang_whose_tasks_saved_differing_ids_resumes_from_the_last_common_one(
    work: Work, tmp_path: Path
) -> None:
    pair(work.cluster, "--checkpoints", str(tmp_path / "all"))
    work.submit(program=DIFFERING, **GANG)
    for attempt, expected in ((1, NONE), (2, "000010-x"), (3, "000010-x")):
        assert {each.resume for each in gang_starts(work, attempt)} == {expected}
        if attempt < 3:
            preempt_gang(work)
    (work.record / "go").touch()
    assert work.cluster.ended(work.id)["status"] == "released"


def half_gone(work: Work) -> Agent:
    """A gang of which one task has saved and left, and one was asked and is held; its agent."""
    agents = pair(work.cluster)
    work.submit(program=DIFFERING, on_silence="stop", **GANG)
    nodes = [each.node for each in gang_starts(work, 1)]
    work.hold()
    work.preempt("p1", gpus=1)
    left = agents[nodes[0]].attempt(work.id, 1, 0) / "exit.json"
    work.until(lambda: left.exists() and work.read(1).asked)
    work.until(lambda: work.happened("task_ended"))
    return agents[nodes[1]]


def resumes_together(work: Work, *ids: str) -> None:
    assert {each.resume for each in gang_starts(work, 2)} <= set(ids)
    (work.record / "go").touch()
    ended = work.cluster.ended(work.id)
    assert (ended["status"], ended["attempt"]) == ("released", 2)


def test_a_gang_that_a_task_has_left_is_asked_again_when_the_hint_is_withdrawn(
    work: Work,
) -> None:
    """Nobody needs its units any more, but what is left of it cannot go on."""
    agent = half_gone(work)
    work.cluster.client.requests.cancel(work.blues[0])
    # A probe that starts later: the agent has heard of whatever follows from the cancelling.
    runs_elsewhere(work, agent.name, gpus=0)
    work.let_go()
    resumes_together(work, "000010-x")


@pytest.mark.usefixtures("short")
def test_a_gang_that_a_task_has_left_does_not_fail_when_a_node_is_lost(work: Work) -> None:
    agent = half_gone(work)
    agent.signal(signal.SIGSTOP)
    exit = agent.attempt(work.id, 1, 1) / "exit.json"
    try:
        work.until(exit.exists)  # its lease is over
    finally:
        agent.signal(signal.SIGCONT)
    work.let_go()
    resumes_together(work, NONE)

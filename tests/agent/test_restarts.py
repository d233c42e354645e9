"""Servers and agents are restarted, killed and frozen while work is being stopped: what was saved
is resumed, nothing fails for what cede did, and nothing is deleted that somebody resumes from.
"""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.agent.cluster import Agent, alive
from tests.agent.record import NONE
from tests.agent.stepping import PAIR, SAVED, Work, holds, other, pair, runs_elsewhere
from tests.client.serving import eventually

pytestmark = pytest.mark.system


# 1. The agent is away while its work is being stopped.


@pytest.mark.parametrize(
    ("way", "protocol"),
    [("killed", "signal"), ("killed", "shm"), ("killed", "grpc"), ("told to end", "signal")],
)
def test_work_that_saves_and_leaves_while_its_agent_is_away_is_suspended(
    work: Work, way: str, protocol: str
) -> None:
    agent = work.cluster.agents[0]
    on = {"node_labels": {"host": agent.name}, "checkpoint_protocol": protocol}
    work.submit("--leave", str(SAVED), **on).until_it_runs()
    work.asked_on(agent.name)
    agent.kill() if way == "killed" else agent.end()
    saved = work.leaves(agent)
    agent.start()
    work.until_suspended()
    assert work.until_it_runs(2).resume == saved
    ended = work.ends_well()
    assert (ended["attempt"], ended["preempted_count"]) == (2, 1)


def test_work_that_crashes_after_saving_while_its_agent_is_away_resumes_from_there(
    work: Work,
) -> None:
    agent = work.cluster.agents[0]
    on = {"node_labels": {"host": agent.name}, "retry": {"max_retries": 3}}
    work.submit("--leave", "1", **on).until_it_runs()
    work.asked_on(agent.name)
    agent.kill()
    saved = work.leaves(agent)
    agent.start()
    assert work.until_it_runs(2).resume == saved
    work.ends_well()


def test_nothing_is_deleted_that_a_running_attempt_was_told_to_resume_from(work: Work) -> None:
    """The second of two checkpoints is found by an agent that was away when it was written."""
    agent = work.cluster.agents[0]
    on = {"node_labels": {"host": agent.name}, "retry": {"max_retries": 3}}
    work.submit("--leave", str(SAVED), **on).until_it_runs()
    work.preempt(agent.name)
    first = work.until_it_runs(2).resume
    assert first != NONE
    work.asked_on(agent.name, attempt=2)
    agent.kill()
    second = work.leaves(agent, attempt=2)
    agent.start()
    third = work.until_it_runs(3)
    assert third.resume == second
    shelf = agent.data / "checkpoints" / work.id / "0"
    # A probe that starts later has been through everything that the agent was told before.
    probe = work.cluster.submit("true", gpus=0, node_labels={"host": agent.name})
    assert work.cluster.ended(probe)["status"] == "released"
    assert {first, second} <= {each.name for each in shelf.iterdir()}, "two are kept"
    work.ends_well()


@pytest.mark.usefixtures("short")
def test_work_of_a_frozen_agent_resumes_elsewhere_from_what_it_saved(
    work: Work, tmp_path: Path
) -> None:
    agents = pair(work.cluster, "--checkpoints", str(tmp_path / "all"))
    work.submit("--leave", str(SAVED), gpus=1, on_silence="stop", **PAIR)
    node = work.until_it_runs().node
    work.hold()
    work.preempt(node, gpus=1)
    work.until(lambda: work.is_asked(1))
    agents[node].signal(signal.SIGSTOP)
    try:
        saved = work.leaves(agents[node])
        again = work.until_it_runs(2)
        assert (again.node, again.resume) == (other(node), saved)
    finally:
        agents[node].signal(signal.SIGCONT)
    work.until(lambda: work.cluster.nodes()[node] == "ready")
    assert work.ends_well()["attempt"] == 2


# 2. What is resumed from is verified where it is read, before the start.


def damage(agent: Agent, work: Work, id: str) -> Path:
    path = agent.data / "checkpoints" / work.id / "0" / id / "done"
    path.write_text(f"{path.read_text()}0")
    return path


def test_work_goes_back_to_the_node_that_has_its_checkpoint(work: Work) -> None:
    pair(work.cluster)
    node = work.submit("--leave", str(SAVED), gpus=1, **PAIR).until_it_runs().node
    go = holds(work, node)
    work.until_suspended()
    runs_elsewhere(work, other(node))
    assert work.get()["status"] == "suspended"
    go.touch()
    again = work.until_it_runs(2)
    assert (again.node, again.resume) == (node, work.read().newest())
    work.ends_well()


def test_work_whose_checkpoint_stays_away_begins_elsewhere_and_says_so(work: Work) -> None:
    agents = pair(work.cluster)
    work.submit("--leave", str(SAVED), gpus=1, resume_wait=1, **PAIR)
    node = work.until_it_runs().node
    go = holds(work, node)
    work.until_suspended()
    agents[node].kill()
    again = work.until_it_runs(2)
    assert (again.node, again.resume) == (other(node), NONE)
    lost = work.read().newest()
    assert any(lost in each for each in work.said_since("suspended")), "it says what it left behind"
    go.touch()
    assert work.ends_well()["attempt"] == 2


def test_work_that_must_resume_waits_for_the_node_that_has_its_checkpoint(work: Work) -> None:
    agents = pair(work.cluster)
    work.submit("--leave", str(SAVED), gpus=1, resume="required", resume_wait=1, **PAIR)
    node = work.until_it_runs().node
    go = holds(work, node)
    work.until_suspended()
    begun = time.monotonic()
    agents[node].kill()
    # Longer than others would wait for it: until two seconds have passed, and a node took work.
    work.until(lambda: time.monotonic() - begun > 2)
    runs_elsewhere(work, other(node))
    assert work.get()["status"] == "suspended"
    go.touch()
    agents[node].start()
    again = work.until_it_runs(2)
    assert (again.node, again.resume) == (node, work.read().newest())
    work.ends_well()


def test_work_that_must_resume_fails_for_a_damaged_checkpoint_and_names_it(work: Work) -> None:
    agents = pair(work.cluster)
    work.submit("--leave", str(SAVED), gpus=1, resume="required", **PAIR)
    node = work.until_it_runs().node
    go = holds(work, node)
    work.until_suspended()
    damage(agents[node], work, work.read().newest())
    go.touch()
    ended = work.cluster.ended(work.id)
    assert (ended["status"], ended["reason"]["code"]) == ("failed", "resume_failed")
    assert f"{work.read().newest()}" in json.dumps(ended["reason"])
    assert "done" in json.dumps(ended["reason"])
    assert work.read().start(2) is None, "it was not started from something else"


def test_an_older_checkpoint_counts_when_the_newest_is_damaged(work: Work) -> None:
    agent = work.cluster.agents[0]
    work.submit("--leave", str(SAVED), node_labels={"host": agent.name}).until_it_runs()
    work.preempt(agent.name)
    older = work.until_it_runs(2).resume
    go = holds(work, agent.name)
    work.until_suspended(2)
    assert work.read().newest() != older
    damage(agent, work, work.read().newest())
    go.touch()
    assert work.until_it_runs(3).resume == older
    work.ends_well()


# 3. The hint is withdrawn while the work saves.


@pytest.mark.parametrize("protocol", ["signal", "shm", "grpc"])
def test_work_that_leaves_after_a_hint_that_was_withdrawn_goes_on(
    work: Work, protocol: str
) -> None:
    agent = work.cluster.agents[0]
    on = {"node_labels": {"host": agent.name}, "checkpoint_protocol": protocol}
    work.submit("--leave", str(SAVED), **on).until_it_runs()
    work.asked_on(agent.name)
    work.cluster.client.requests.cancel(work.blues[0])
    hint = agent.attempt(work.id) / "talk" / "hint.json"
    work.until(lambda: json.loads(hint.read_text())["withdrawn"])
    work.let_go()
    assert work.until_it_runs(2).resume == work.read().newest()
    assert work.ends_well()["attempt"] == 2


# 4. The server is away for longer than the lease.


@pytest.mark.usefixtures("short")
def test_work_outlives_its_server_on_the_same_machine_unless_it_is_told_to_stop(
    work: Work, tmp_path: Path
) -> None:
    cluster = work.cluster
    agents = pair(cluster)

    def begin(on_silence: str | None) -> tuple[Work, int]:
        home = tmp_path / str(on_silence)
        home.mkdir()
        made = Work(cluster, home).submit(gpus=1, on_silence=on_silence, **PAIR)
        agent = agents[made.until_it_runs().node]
        return made, json.loads((agent.attempt(made.id) / "started.json").read_text())["pid"]

    (lasting, its_pid), (stopped, pid) = begin(None), begin("stop")
    cluster.server.kill()
    eventually(lambda: not alive(pid))  # so the lease is over
    cluster.server.start()
    for name in agents:
        cluster.until_ready(name)
    stopped.until_it_runs(2)
    assert alive(its_pid)
    assert lasting.ends_well()["attempt"] == 1
    assert stopped.ends_well()["attempt"] == 2

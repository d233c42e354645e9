"""Servers and agents are restarted, killed and frozen while work is being stopped: what was saved
is resumed, nothing fails for what cede did, and nothing is deleted that somebody resumes from.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import cede
from cede import CedeClientError
from cede.client.http import API
from tests.agent.cluster import BLUE, POOL, Agent, Cluster, alive
from tests.agent.record import NONE, Record, Start
from tests.client.serving import eventually

pytestmark = pytest.mark.system

PROGRAMS = Path(__file__).parent / "programs"
STEPPING = PROGRAMS / "stepping.py"
DIFFERING = PROGRAMS / "differing.py"
AMPLE = 60.0
LEASE = 3.0
SAVED = 75  # the exit code of work that was asked to save itself, did, and leaves
HOLD = "while ! test -e {go}; do sleep 0.05; done"
# The work's Python finds the cede that this test finds, also where another one is installed.
ENVIRONMENT = {"PYTHONPATH": str(Path(cede.__file__).parents[1])}


@dataclass
class Work:
    """A program that records what it does, and blue's requests that preempt it."""

    cluster: Cluster
    home: Path
    id: str = ""
    blues: list[str] = field(default_factory=list)

    def submit(self, *options: str, program: Path = STEPPING, **fields: Any) -> Work:
        for each in (self.record, self.home / "locks"):
            each.mkdir(exist_ok=True)
        argv = [sys.executable, str(program), str(self.record), str(self.home / "locks"), *options]
        given = {"checkpoint": "auto", "checkpoint_timeout": AMPLE, "gpus": 2, **fields}
        self.id = self.cluster.submit(*argv, work={"env": ENVIRONMENT}, **given)
        return self

    @property
    def record(self) -> Path:
        return self.home / "record"

    def read(self, task: int = 0) -> Record:
        return Record.read(self.record / str(task))

    def until(self, look: Callable[[], object]) -> None:
        self.cluster.until(look, about=self.id)

    def until_it_runs(self, attempt: int = 1, *tasks: int) -> Start:
        """The start of an attempt, once it has done a step."""

        def runs(task: int) -> bool:
            return any(each == attempt for each, _ in self.read(task).steps)

        def look() -> bool:
            status = self.get()["status"]
            assert status not in ("failed", "rejected"), self.cluster.story(self.id)
            return all(runs(each) for each in tasks or (0,))

        self.until(look)
        found = self.read(tasks[0] if tasks else 0).start(attempt)
        assert found is not None
        return found

    def preempt(self, node: str, *argv: str, gpus: int = 2) -> str:
        on = {"node_labels": {"host": node}}
        made = self.cluster.submit(*(argv or ("true",)), gpus=gpus, component=BLUE, **on)
        self.blues.append(made)
        return made

    def is_asked(self, attempt: int) -> bool:
        return attempt in self.read().asked

    def hold(self) -> None:
        """From now on it waits before it saves, until it is let go."""
        (self.record / "hold").touch()

    def let_go(self) -> None:
        (self.record / "hold").unlink(missing_ok=True)

    def asked_on(self, node: str, attempt: int = 1) -> None:
        """Blue wants what it has; it was asked to save itself, and waits for us."""
        self.hold()
        self.preempt(node)
        self.until(lambda: self.is_asked(attempt))

    def leaves(self, agent: Agent, attempt: int = 1) -> str:
        """It saves and ends while nobody looks; the id of what it saved."""
        self.let_go()
        self.until((agent.attempt(self.id, attempt) / "exit.json").exists)
        return self.read().newest()

    def get(self) -> dict[str, Any]:
        return self.cluster.get(self.id)

    def happened(self, kind: str) -> list[dict[str, Any]]:
        return [each["data"] for each in self.cluster.events(self.id, kind)]

    def said_since(self, kind: str) -> list[str]:
        """All events of it after the last one of a kind."""
        wanted = {"request_id": self.id, "limit": 500}
        found = self.cluster.client.http.call("GET", f"{API}/events", params=wanted)["items"]
        last = max(n for n, each in enumerate(found) if each["kind"] == kind)
        return [json.dumps(each) for each in found[last + 1 :]]

    def until_suspended(self, times: int = 1) -> None:
        self.until(lambda: self._suspended() >= times)

    def _suspended(self) -> int:
        assert self.get()["status"] != "failed", self.cluster.story(self.id)
        return len(self.happened("suspended"))

    def ends_well(self) -> dict[str, Any]:
        """It is done, did every step, and what it resumed from was there all the time."""
        (self.record / "go").touch()
        ended = self.cluster.ended(self.id)
        assert ended["status"] == "released", self.cluster.story(self.id)
        for path in sorted(self.record.glob("[0-9]")):
            found = Record.read(path)
            steps = {step for _, step in found.steps}
            assert steps == set(range(len(steps)))
            assert not found.gone
        assert not (self.home / "locks" / "overlap").exists()
        return ended


@pytest.fixture
def work(shared: Cluster, tmp_path: Path) -> Work:
    shared.allow_blue()
    return Work(shared, tmp_path)


@pytest.fixture
def short(shared: Cluster) -> Iterator[None]:
    """Nodes may be silent for seconds only."""
    before = shared.client.pools.get(POOL)["settings"].get("node_lease")
    try:
        shared.client.pools.update(POOL, settings={"node_lease": LEASE})
    except CedeClientError:  # a server without the setting: six heartbeats
        yield
        return
    yield
    shared.client.pools.update(POOL, settings={"node_lease": before})


def pair(cluster: Cluster, *options: str, gpus: int = 1) -> dict[str, Agent]:
    """Two nodes with one label."""
    own = ("--allow-root-jobs", "--label", "for=pair", *options)
    agents = {name: cluster.start_agent(name, gpus, *own) for name in ("p1", "p2")}
    for name in agents:
        cluster.until_ready(name)
    cluster.allow_everything()
    return agents


PAIR = {"node_labels": {"for": "pair"}}


def other(node: str) -> str:
    return "p2" if node == "p1" else "p1"


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


def holds(work: Work, node: str) -> Path:
    """Blue takes a node, and keeps it until the file that is returned exists."""
    go = work.home / f"go-{len(work.blues)}"
    work.preempt(node, "sh", "-c", HOLD.format(go=go), gpus=1)
    return go


def runs_elsewhere(work: Work, node: str, gpus: int = 1) -> None:
    """Other work of the same team was put on that node: nothing but its own wish keeps this off."""
    probe = work.cluster.submit("true", gpus=gpus, node_labels={"host": node})
    assert work.cluster.ended(probe)["status"] == "released"


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


# 3. Gangs.

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


# 4. The hint is withdrawn while the work saves.


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


# 5. The server is away for longer than the lease.


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

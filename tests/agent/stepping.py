"""Work that records its own steps under real agents, for tests of what a restart must not lose."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cede
from cede.client.http import API
from tests.agent.cluster import BLUE, Agent, Cluster
from tests.agent.record import Record, Start

STEPPING = Path(__file__).parent / "programs" / "stepping.py"
AMPLE = 60.0
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


def holds(work: Work, node: str) -> Path:
    """Blue takes a node, and keeps it until the file that is returned exists."""
    go = work.home / f"go-{len(work.blues)}"
    work.preempt(node, "sh", "-c", HOLD.format(go=go), gpus=1)
    return go


def runs_elsewhere(work: Work, node: str, gpus: int = 1) -> None:
    """Other work of the same team was put on that node: nothing but its own wish keeps this off."""
    probe = work.cluster.submit("true", gpus=gpus, node_labels={"host": node})
    assert work.cluster.ended(probe)["status"] == "released"

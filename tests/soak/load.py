"""The work of a soak: programs that save only when they are asked to, and blue's short requests
that make them stop.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import NAMESPACE_OID, uuid5

import cede
from cede import CedeClientError, Client
from cede.client.errors import ServerBroken, ServerUnreachable
from tests.agent.cluster import BLUE, LIVE, TEAM
from tests.agent.record import Record

POOL = "soak"
STEPPING = Path(__file__).parents[1] / "agent" / "programs" / "stepping.py"
PROTOCOLS = ("signal", "shm", "grpc")
OVER = ("released", "failed", "cancelled", "preempted", "rejected")
SAVE_SECONDS = 300  # for a save; agents are away for a part of it
RESUME_WAIT = 3600  # seconds: every node comes back, so that no checkpoint is given up
LOOK = 0.2
BLUE_RUNS = (0.05, 1.0)
WITHDRAWN = 0.15  # the part of blue's requests that is cancelled while somebody may be saving
CHANGES_ITS_MIND = (0.1, 1.5)  # seconds after which it is


Answer = TypeVar("Answer")


@dataclass
class Program:
    """One request of red, and what its tasks recorded."""

    record: Path
    tasks: int
    steps: int
    id: str = ""
    status: str = "queued"
    reason: str = ""
    stops: int = 0

    def read(self) -> list[Record]:
        return [Record.read(self.record / str(task)) for task in range(self.tasks)]

    def count_stops(self) -> None:
        """How many of its attempts were asked to save themselves, by its own account."""
        self.stops = len({attempt for each in self.read() for attempt in each.asked})


@dataclass
class Load:
    client: Client
    home: Path
    nodes: list[str]
    gpus: int  # of all nodes
    steps: int
    pause: float
    dice: random.Random
    programs: list[Program] = field(default_factory=list)
    blues: dict[str, float] = field(default_factory=dict)  # waiting or running: cancelled when
    blue_count: int = 0
    withdrawn: int = 0
    failed_blues: list[str] = field(default_factory=list)
    until: float = float("inf")
    deadline: float = float("inf")

    def run(self, wanted: int) -> None:
        """Submit and preempt until so many stops have begun, or it is time to let it run out."""
        while self.stops < wanted and time.monotonic() < min(self.until, self.deadline):
            with suppress(CedeClientError):  # the server is away; everything is tried again
                self._look()
                self._submit()
                self._preempt()
            time.sleep(LOOK)

    def settle(self) -> None:
        """Let everything run to its end."""
        while self.live() and time.monotonic() < self.deadline:
            with suppress(CedeClientError):
                self._look()
            time.sleep(LOOK)

    @property
    def stops(self) -> int:
        return sum(each.stops for each in self.programs)

    def live(self) -> list[str]:
        return [each.id for each in self.programs if each.status not in OVER] + list(self.blues)

    def _look(self) -> None:
        for each in self.programs:
            if each.status not in OVER:
                each.count_stops()
        live = {each["id"] for each in self.client.requests.list(status=list(LIVE))}
        for each in self.programs:
            if each.status not in OVER and each.id not in live:
                found = self.client.requests.get(each.id)
                each.status, each.reason = found["status"], str(found["reason"])
                each.count_stops()
        for blue, until in list(self.blues.items()):
            if blue not in live:
                status = self.client.requests.get(blue)["status"]
                del self.blues[blue]
                if status not in ("released", "cancelled"):
                    self.failed_blues.append(f"{blue} {status}")
            elif time.monotonic() > until:
                self.client.requests.cancel(blue)
                self.withdrawn += 1
                self.blues[blue] = float("inf")

    def _submit(self) -> None:
        """Keep all GPUs wanted, and one program more."""
        used = sum(each.tasks for each in self.programs if each.status not in OVER)
        while used <= self.gpus:
            made = self._program()
            self.programs.append(made)
            used += made.tasks

    def _program(self) -> Program:
        number = len(self.programs)
        tasks = 2 if number % 4 == 3 else 1
        record = self.home / "records" / f"{number:04d}"
        record.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, str(STEPPING), str(record), str(self.home / "locks")]
        argv += ["--steps", str(self.steps), "--pause", str(self.pause)]
        argv += ["--together"] if tasks > 1 else []
        argv += ["--leave", "75"] if self.dice.random() < 0.5 else []
        body = {
            **self._body(argv, TEAM, 1),
            "tasks": tasks,
            "per_node": 1,
            "checkpoint": "auto",
            "checkpoint_protocol": PROTOCOLS[number % len(PROTOCOLS)],
            "checkpoint_timeout": SAVE_SECONDS,
            "on_silence": self.dice.choice(["stop", "keep"]),
            "resume_wait": RESUME_WAIT,
        }
        made = Program(record, tasks, self.steps)
        made.id = self._create(body, f"program-{number}")
        return made

    def _preempt(self) -> None:
        """Blue wants a node that somebody has, or any."""
        if len(self.blues) >= len(self.nodes):
            return
        seconds = self.dice.uniform(*BLUE_RUNS)
        gpus = self.dice.choice([1, 1, 2])
        body = self._body(["sleep", f"{seconds:.2f}"], BLUE, gpus)
        if self.dice.random() < 0.7:
            body["node_labels"] = {"host": self.dice.choice(self.nodes)}
        body["on_silence"] = "stop"
        self.blue_count += 1
        made = self._create(body, f"blue-{self.blue_count}")
        until = float("inf")
        if self.dice.random() < WITHDRAWN:
            until = time.monotonic() + self.dice.uniform(*CHANGES_ITS_MIND)
        self.blues[made] = until

    def _body(self, argv: list[str], team: str, gpus: int) -> dict[str, Any]:
        # The work's Python finds the cede that this process has, also where another is installed.
        env = {"PYTHONPATH": str(Path(cede.__file__).parents[1])}
        return {
            "kind": "work",
            "resources": {"gpu": gpus},
            "pool": POOL,
            "component": team,
            "component_type": "team",
            "work": {"argv": argv, "env": env},
        }

    def _create(self, body: dict[str, Any], key: str) -> str:
        """Once, however often the server dies before it has answered."""
        once = str(uuid5(NAMESPACE_OID, f"{self.home}/{key}"))
        made = until_answered(lambda: self.client.requests.create(body, key=once), self.deadline)
        assert made["status"] != "rejected", made
        return str(made["id"])


def until_answered(ask: Callable[[], Answer], deadline: float) -> Answer:
    while True:
        try:
            return ask()
        except (ServerUnreachable, ServerBroken):
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK)

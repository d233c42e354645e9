"""cede itself: one server on SQLite, one agent with 40 GPUs that are only counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cede
from benchmarks import service
from benchmarks.jobs import node
from benchmarks.peers.peer import SLOTS, WIDE, Peer, Preemption, Stage, rate, run
from cede import Client
from tests.support.sources import HERE

WELL = "released"


class Cede(Peer):
    name = "cede"
    alike = "one node with 40 slots, programs started as processes of their own, their output kept"
    unlike = (
        "every submission, grant, start and end is on disk before it is answered or acted upon; "
        "every program has a supervisor that survives the agent and leaves no process behind"
    )

    def version(self) -> str:
        return cede.__version__

    def start(self, home: Path) -> None:
        self._home = home
        found = self.started.enter_context(node(home, HERE))
        self._client: Client = found.client
        self._env = found.serving.environment()

    def jobs(self, number: int) -> float:
        return self._jobs(number, lambda: self._submit("--array", f"0-{number - 1}", "--", "true"))

    def one_by_one(self, number: int) -> float:
        def submit() -> None:
            for _ in range(number):
                self._submit("--", "true")

        return self._jobs(number, submit)

    def _jobs(self, number: int, submit: Callable[[], object]) -> float:
        before = self._ended_well()
        found = rate(number, submit, self._is_empty)
        assert self._ended_well() - before == number, "not every job ended well"
        return found

    def _is_empty(self) -> bool:
        pool = self._client.pools.get("bench")
        return not pool["queued"] and not pool["active"]

    def _ended_well(self) -> int:
        return sum(each["status"] == WELL for each in self._client.requests.list())

    def _submit(self, *rest: object, team: str = "bench", gpu: int = 1) -> str:
        who = ("--component", team, "-t", "team", "--pool", "bench", "--gpu", gpu)
        return run("cede", "submit", *who, *rest, env=self._env, cwd=self._home)

    def grants(self, number: int) -> float:
        with service.serving("cede.cli") as served:
            return service.turn(served, "POST", "/api/v1/requests", service.BODY, number).rate

    def preempt(self) -> Preemption:
        self._client.policies.attach(
            "bench", "owner", component_type="team", priority=1, reserved={"gpu": SLOTS}
        )
        stage = Stage(self._home)
        ids: list[str] = []
        found = stage.play(
            lambda: ids.append(
                self._submit(
                    *("--array", f"0-{SLOTS - 1}", "--", "bash", stage.narrow, stage.lines)
                )
            ),
            lambda: ids.append(
                self._submit(
                    *("--array", f"0-{SLOTS // WIDE - 1}", "--", "bash", stage.wide, stage.lines),
                    team="owner",
                    gpu=WIDE,
                )
            ),
        )
        run("cede", "cancel", ids[0], env=self._env)
        return found

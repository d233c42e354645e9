"""Work that fills one agent while it, its server or both are restarted or replaced.

Some tasks are never asked to stop. They wait at a door, a named pipe, which costs no time of the
processor. The others are asked to save themselves for a beneficiary, and do it when the test lets
them. Each task notes its process and its attempt, so that a second start does not go unnoticed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.agent.cluster import BLUE, GRACE, TEAM, Agent, Cluster, alive, read_when_there
from tests.support.sources import Source

PROGRAM = Path(__file__).parent / "programs" / "waits.py"
AT_THE_DOOR = 'echo "$CEDE_ATTEMPT $$ anew" >> {notes}; : < {door}'
# Nothing here ends because its time is over, also not on a busy machine.
AMPLE = 1200.0
HEARTBEAT = 30.0  # six of them were the lease of a node once
SETTINGS = {"grace": GRACE}  # and else what is usual, above all the lease of a node


class Crew:
    """The work on one agent. The victims import cede from `source`, as a program that was started
    before an upgrade goes on with the library that it has.
    """

    def __init__(self, cluster: Cluster, agent: Agent, home: Path, source: Source) -> None:
        self.cluster, self.agent, self.home, self.source = cluster, agent, home, source
        self.stayers: dict[str, str] = {}  # a request's id by its name here
        self.victims: dict[str, str] = {}
        self.beneficiary = ""
        self.pids: dict[str, int] = {}
        home.mkdir(parents=True)
        for door in ("stay", "held"):
            os.mkfifo(home / door)

    def start(self, stayers: int, victims: int) -> None:
        """Submit all of it; `started` waits until it runs."""
        for number in range(stayers):
            # No restart lasts as long as a lease, so also those go on that would end with it.
            name, silence = f"stayer-{number}", ("stop", "keep")[number % 2]
            self.stayers[name] = self._at_door("stay", name, on_silence=silence)
        python = (sys.executable, str(PROGRAM))
        for number in range(victims):
            # Those that leave end by themselves, also while no agent looks.
            name, how = f"victim-{number}", ("leaves", "is stopped")[number % 2]
            self.victims[name] = self._submit(
                *python, how, name, str(self.home),
                component=TEAM, checkpoint="auto", checkpoint_timeout=AMPLE,
                checkpoint_protocol=("signal", "shm", "grpc")[number % 3],
                work={"env": self.source.variables()},
            )  # fmt: skip

    def _at_door(self, door: str, name: str, **fields: Any) -> str:
        script = AT_THE_DOOR.format(notes=self.home / name, door=self.home / door)
        return self._submit("sh", "-c", script, component=BLUE, **fields)

    def _submit(self, *argv: str, **fields: Any) -> str:
        given = {"node_labels": {"host": self.agent.name}, **fields}
        return self.cluster.submit(*argv, **given)

    def started(self) -> None:
        for name in (*self.stayers, *self.victims):
            [(attempt, pid, _)] = self.notes(name)
            assert attempt == 1
            self.pids[name] = pid
        # Work of which the server has not heard that it started has nothing to save for it.
        mine = {*self.stayers.values(), *self.victims.values()}
        self.cluster.until(lambda: mine <= self._running())

    def _running(self) -> set[str]:
        found = self.cluster.client.requests.list(status=["allocated"], limit=200)
        return {each["id"] for each in found if each["allocation"]["state"] == "running"}

    def notes(self, name: str) -> list[tuple[int, int, str]]:
        """The attempt, the process and the word of each note."""
        lines = read_when_there(self.home / name).splitlines()
        found = [line.split(" ", 2) for line in lines]
        return [(int(attempt), int(pid), word) for attempt, pid, word in found]

    def ask(self) -> None:
        """Blue takes back what the victims have; they have heard of it and have not saved."""
        self.beneficiary = self._at_door("held", "beneficiary", gpus=len(self.victims))
        self._until_each_noted("asked")

    def _until_each_noted(self, word: str) -> None:
        for name, request in self.victims.items():
            self.cluster.until(lambda: self.notes(name)[-1][2] == word, about=request)  # noqa: B023

    def check(self, victims: str = "asked") -> None:
        """Nothing stopped that was not asked to, and nothing runs a second time.

        The victims are in the middle of their stop (`asked`) or have ended (`gone`).
        """
        found = {each["id"]: each for each in self.cluster.client.requests.list(limit=200)}
        for name, request in self.stayers.items():
            self._runs_on(name, found[request], "allocated")
            assert len(self.notes(name)) == 1, self.cluster.story(request)
        for name, request in self.victims.items() if victims == "asked" else ():
            self._runs_on(name, found[request], "preempting")
            assert [each[2] for each in self.notes(name)] == ["anew", "asked"]

    def _runs_on(self, name: str, found: dict[str, Any], status: str) -> None:
        story = self.cluster.story
        assert alive(self.pids[name]), f"{name} is gone\n{story(found['id'])}"
        assert (found["status"], found["attempt"]) == (status, 1), story(found["id"])

    def takes_work(self) -> None:
        """The node hears of something new, does it and is heard of."""
        probe = self._submit("true", component=BLUE, resources={"mcpu": 1})
        ended = self.cluster.ended(probe)
        assert (ended["status"], ended["attempt"]) == ("released", 1), self.cluster.story(probe)

    def save(self) -> None:
        """The victims save themselves, whoever is there to see it; every second one leaves."""
        (self.home / "save").touch()
        self._until_each_noted("saved")
        for name in [*self.victims][::2]:
            self.cluster.until(lambda: not alive(self.pids[name]))  # noqa: B023

    def suspended(self) -> None:
        """Each victim has made room and has its checkpoint."""
        cluster = self.cluster
        for name, request in self.victims.items():
            cluster.until(lambda: cluster.get(request)["status"] == "suspended", about=request)  # noqa: B023
            found = cluster.get(request)
            assert found["saved"], cluster.story(request)
            assert found["preempted_count"] == 1, cluster.story(request)
            assert not alive(self.pids[name]), f"{name} holds its units still"

    def resume(self) -> None:
        """The beneficiary is done, and each victim goes on from what it saved."""
        saved = {request: self.cluster.get(request)["saved"] for request in self.victims.values()}
        with self._open("held"):
            assert self.cluster.ended(self.beneficiary)["status"] == "released"
        for name, request in self.victims.items():
            ended = self.cluster.ended(request)
            story = self.cluster.story(request)
            assert (ended["status"], ended["attempt"]) == ("released", 2), story
            assert ended["preempted_count"] == 1, story
            attempt, _, word = self.notes(name)[-1]
            assert (attempt, word) == (2, f"from {name}"), story
            assert ended["saved"]["id"] == saved[request]["id"]
            assert len(self.cluster.events(request, "suspended")) == 1

    def finish(self) -> None:
        """Each of those that stayed ends well, in its only attempt."""
        with self._open("stay"):
            for name, request in self.stayers.items():
                ended = self.cluster.ended(request)
                story = self.cluster.story(request)
                assert (ended["status"], ended["attempt"]) == ("released", 1), story
                assert [each[1] for each in self.notes(name)] == [self.pids[name]], story

    @contextmanager
    def _open(self, door: str) -> Iterator[None]:
        """Reader and writer at once, so that nobody is waited for."""
        held = os.open(self.home / door, os.O_RDWR)
        try:
            yield
        finally:
            os.close(held)


def crews(
    cluster: Cluster, shares: dict[str, tuple[int, int]], home: Path, source: Source
) -> list[Crew]:
    """An agent for each name, full of as many stayers and victims, all of which run."""
    made = []
    for name, numbers in shares.items():
        cluster.start_agent(name, sum(numbers), "--allow-root-jobs")
    for agent in cluster.agents:
        cluster.until_ready(agent.name)
    cluster.allow_everything()
    cluster.allow_blue(sum(sum(numbers) for numbers in shares.values()))
    for agent in cluster.agents:
        crew = Crew(cluster, agent, home / agent.name, source)
        crew.start(*shares[agent.name])
        made.append(crew)
    for crew in made:
        crew.started()
    return made


def restart(cluster: Cluster, agent: Agent, source: Source | None = None) -> None:
    """End an agent as a service manager does, and start it again, with another tree if given."""
    joined = agent.log.read_text().count("joined")
    assert agent.end() == 0, agent.log.read_text()
    agent.source = source or agent.source
    agent.start()
    cluster.until(lambda: agent.log.read_text().count("joined") > joined)

"""A gang of real programs: a host for each task, and a server's part in the agreement."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from cede.talk.heard import Reach, Saved
from tests.checkpoint.hosting import PATIENCE, Host


class GangHost:
    """Hears all tasks and tells them the largest of their answers, as a server and agents do."""

    def __init__(self, folder: Path, protocol: str, tasks: int = 2) -> None:
        self.hosts = []
        for task in range(tasks):
            (folder / str(task)).mkdir()
            self.hosts.append(Host(folder / str(task), protocol))
        self.agreed = 0
        self.floor = 0  # as if another task had answered so
        self.saved: list[list[Saved]] = [[] for _ in self.hosts]
        self._reaches: dict[int, int] = {}
        self._number = 0

    def run(
        self, *command: str | Path, resume: str = "", attempt: int = 1, **environment: str
    ) -> None:
        for task, host in enumerate(self.hosts):
            told = {"CEDE_TASK": str(task), "CEDE_TASKS": str(len(self.hosts))}
            told |= {"CEDE_ATTEMPT": str(attempt)} | environment
            path = host.checkpoints / resume if resume else None
            variables = [f"{name}={value}" for name, value in told.items()]
            host.run("env", *variables, *command, resume=path, ready="")

    def hint(self, number: int, *, seconds: float = 600.0) -> None:
        self._number, self.agreed, self._reaches = number, 0, {}
        for host in self.hosts:
            host.conversation.hint(number, seconds)

    def listen(self, is_over: Callable[[], bool], *, relays: bool = True) -> None:
        """Poll all hosts until `is_over`; without `relays` nobody hears what others answer."""
        deadline = time.monotonic() + PATIENCE
        while not is_over():
            assert time.monotonic() < deadline, [host.said() for host in self.hosts]
            for task, host in enumerate(self.hosts):
                for each in host.conversation.poll(time.monotonic()):
                    if isinstance(each, Reach) and each.number == self._number:
                        self._reaches[task] = each.step
                    if isinstance(each, Saved):
                        self.saved[task].append(each)
            if relays and len(self._reaches) == len(self.hosts):
                self.agreed = max(self.floor, *self._reaches.values())
                for host in self.hosts:
                    host.conversation.agree(self._number, self.agreed)
            time.sleep(0.01)

    def ids(self, number: int | None) -> list[set[str]]:
        """For each task, what it saved for this hint."""
        return [{s.saved.id for s in saved if s.number == number} for saved in self.saved]

    def have_answered(self) -> bool:
        """Whether all have a checkpoint of the agreed step."""
        wanted = f"{self.agreed:06d}-"
        return all(any(id.startswith(wanted) for id in task) for task in self.ids(self._number))

    def have_saved(self) -> bool:
        """The same by what is on disk: a host may go over to a newer one before it reports."""
        wanted = f"{self.agreed:06d}-*.manifest.json"
        return all(list(host.checkpoints.glob(wanted)) for host in self.hosts)

    def next_attempt(self) -> None:
        self.saved = [[] for _ in self.hosts]
        for host in self.hosts:
            host.next_attempt()

    def close(self) -> None:
        for host in self.hosts:
            host.close()

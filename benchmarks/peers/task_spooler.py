"""task-spooler: one server for one user, in memory; `tsp COMMAND` puts a job into its queue."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from benchmarks.peers.peer import SLOTS, Peer, rate, run


class TaskSpooler(Peer):
    name = "task-spooler"
    alike = "40 slots, programs started as processes of their own, their output kept in files"
    unlike = (
        "one user on one machine, everything in memory; a process that leaves its parent is not "
        "found; no arrays, no priorities beyond moving one to the front"
    )

    def missing(self) -> str:
        return "" if shutil.which("tsp") else "no tsp: apt-get install -y task-spooler"

    def version(self) -> str:
        words = run("tsp", "-V").split()
        return next((each.lstrip("v").rstrip(",") for each in words if each[:2] == "v1"), "?")

    def start(self, home: Path) -> None:
        self._env = {
            **os.environ,
            "TS_SOCKET": str(home / "socket"),
            "TMPDIR": str(home),
            "TS_MAXFINISHED": "100000",
        }
        self.started.callback(run, "tsp", "-K", env=self._env)
        run("tsp", "-S", SLOTS, env=self._env)

    def one_by_one(self, number: int) -> float:
        def submit() -> None:
            for _ in range(number):
                run("tsp", "true", env=self._env)

        run("tsp", "-C", env=self._env)
        found = rate(number, submit, lambda: len(self._ended()) == number)
        assert all(code == "0" for code in self._ended()), "not every job ended well"
        return found

    def _ended(self) -> list[str]:
        """The exit codes of the jobs that have ended."""
        lines = [line.split() for line in run("tsp", "-l", env=self._env).splitlines()[1:]]
        return [line[3] for line in lines if line[1] == "finished"]

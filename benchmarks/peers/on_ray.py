"""Ray on one node: each job is a call of a remote function that starts the program."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers import apart
from benchmarks.peers.peer import SLOTS, Lacks, Peer


class Ray(Peer):
    name = "Ray"
    alike = "one node with 40 slots; a program is started as a process of its own, and waited for"
    unlike = (
        "all in memory; the program is a child of a warm worker and is not contained; output is "
        "not kept; an array is calls from a process that runs already (its command for "
        "submitting needs the dashboard, another package, and starts a driver each time)"
    )

    def missing(self) -> str:
        return apart.missing("ray")

    def version(self) -> str:
        return apart.version("ray")

    def start(self, home: Path) -> None:
        self._host = apart.Host("ray_host.py", home, SLOTS, RAY_USAGE_STATS_ENABLED="0")
        self.started.callback(self._host.stop)
        self._host.answer()

    def jobs(self, number: int) -> float:
        took = self._host.ask(f"jobs {number}")
        assert isinstance(took, float)
        return number / took

    def one_by_one(self, number: int) -> float:
        raise Lacks("has no command")

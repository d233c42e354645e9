"""HyperQueue from its wheel, which has server, worker and client library, and no command."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from benchmarks.peers import apart
from benchmarks.peers.peer import SLOTS, Peer


class HyperQueue(Peer):
    name = "HyperQueue"
    alike = "one worker with 40 slots, programs started as processes of their own, output kept"
    unlike = (
        "no journal in its wheel: all in memory; a process that leaves its parent is not found; "
        "an array is a call from a process that runs already; its command is three lines of "
        "Python, for the wheel has none; one by one it is asked once a second for the end"
    )

    def missing(self) -> str:
        return apart.missing("hyperqueue")

    def version(self) -> str:
        return apart.version("hyperqueue")

    def start(self, home: Path) -> None:
        (home / "server").mkdir()
        self._host = apart.Host("hyperqueue_host.py", home, SLOTS)
        self.started.callback(self._host.stop)
        found = self._host.answer()
        assert isinstance(found, dict)
        self._directory = found["directory"]

    def jobs(self, number: int) -> float:
        took = self._host.ask(f"jobs {number}")
        assert isinstance(took, float)
        return number / took

    def one_by_one(self, number: int) -> float:
        started = perf_counter()
        ids = [
            self._host.beside("hyperqueue_submit.py", self._directory).split()[-1]
            for _ in range(number)
        ]
        assert self._host.ask(f"wait {' '.join(ids)}") == 0, "not every job ended well"
        return number / (perf_counter() - started)

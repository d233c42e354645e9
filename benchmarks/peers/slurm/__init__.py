"""Slurm from the distribution's packages, in three tunings, of which the best counts each time.

The tunings are the files beside this one; common.conf belongs to all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.peer import SLOTS, WIDE, Peer, Preemption, Stage, rate, run
from tests.slurm.cluster import cluster, missing

HERE = Path(__file__).parent
TUNINGS = ("responsive", "throughput", "builtin")


class Slurm(Peer):
    name = "Slurm"
    alike = "one node with 40 slots (its CPUs), programs started as processes, their output kept"
    unlike = (
        "what is submitted and started is saved in the background, some seconds later; processes "
        "of a Slurm job are found by parent or by group (no cgroups here), which costs less than "
        "cede's containment and catches less; no accounting database"
    )

    def __init__(self, tuning: str) -> None:
        super().__init__()
        self.variant = tuning

    def missing(self) -> str:
        return missing()

    def version(self) -> str:
        return self._slurm.run("sbatch", "--version").split()[1]

    def start(self, home: Path) -> None:
        self._home = home
        (home / "slurm").mkdir()
        (home / "output").mkdir()
        more = "".join((HERE / f"{each}.conf").read_text() for each in (self.variant, "common"))
        self._slurm = self.started.enter_context(
            cluster(home / "slurm", (0,), cpus=SLOTS, more=more)
        )

    def jobs(self, number: int) -> float:
        return self._jobs(number, lambda: self._submit(f"--array=0-{number - 1}", "--wrap=true"))

    def one_by_one(self, number: int) -> float:
        def submit() -> None:
            for _ in range(number):
                self._submit("--wrap=true")

        return self._jobs(number, submit)

    def _jobs(self, number: int, submit: Callable[[], object]) -> float:
        before = self._ended_well()
        found = rate(number, submit, lambda: not self._slurm.run("squeue", "-h", "-o", "%A"))
        assert self._ended_well() - before == number, "not every job ended well"
        return found

    def _ended_well(self) -> int:
        return len(self._slurm.run("squeue", "-h", "-r", "-t", "COMPLETED", "-o", "%i").split())

    def _submit(self, *rest: object) -> str:
        options = ("--parsable", f"--chdir={self._home / 'output'}")
        return run("sbatch", *options, *rest, env=self._slurm.env)

    def preempt(self) -> Preemption:
        stage = Stage(self._home)
        ids: list[str] = []

        def submit(number: int, program: Path, *options: str) -> None:
            wrap = f"--wrap=bash {program} {stage.lines}"
            ids.append(self._submit(f"--array=0-{number - 1}", *options, wrap))

        found = stage.play(
            lambda: submit(SLOTS, stage.narrow),
            lambda: submit(
                SLOTS // WIDE, stage.wide, f"--cpus-per-task={WIDE}", "--partition=urgent"
            ),
        )
        self._slurm.run("scancel", ids[0])
        return found

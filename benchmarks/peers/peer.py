"""The interface of a peer, and what all of them are given to do."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep, time

SLOTS = 40
WIDE = 8  # slots of a job that preempts: five of them need all 40
PATIENCE = 900.0
LOOK = 0.05

# Each says by a line that it runs, and since when. The wide ones wait for each other, so that all
# narrow ones must go, and end a second later.
NARROW = 'echo "narrow $EPOCHREALTIME" >>"$1"; exec sleep 3600\n'
WIDE_ONE = f"""
echo "wide $EPOCHREALTIME" >>"$1"
until [ "$(grep -c wide "$1")" -ge {SLOTS // WIDE} ]; do sleep 0.1; done
sleep 1
echo "ended $EPOCHREALTIME" >>"$1"
"""


class Lacks(Exception):
    """The peer cannot do this; the text stands in the table."""


@dataclass(frozen=True)
class Preemption:
    """Seconds after the command until the last wide job ran, how many jobs were stopped for them,
    and seconds after the last wide job had ended until all of those ran again.
    """

    started: float
    stopped: int
    back: float


class Peer(ABC):
    """A peer that is started in a folder of its own, measured, and stopped.

    A measurement returns things per second, and has seen that every job ended well.
    """

    name: str
    variant = ""  # one of several configurations, of which the best counts
    alike: str
    unlike: str

    def __init__(self) -> None:
        self.started = ExitStack()  # ends what `start` began

    def missing(self) -> str:
        """Why it cannot be measured here; empty when it can."""
        return ""

    @abstractmethod
    def version(self) -> str:
        """Once it is started."""

    @abstractmethod
    def start(self, home: Path) -> None: ...

    def stop(self) -> None:
        """Also if `start` did not get far."""
        self.started.close()

    def jobs(self, number: int) -> float:
        """So many no-op jobs, submitted at once, until all have ended."""
        raise Lacks("has none")

    def one_by_one(self, number: int) -> float:
        """So many no-op jobs, each submitted by a command of its own, until all have ended."""
        raise Lacks("has none")

    def grants(self, number: int) -> float:
        """So many requests made and granted, each on disk before it is answered."""
        raise Lacks("has none")

    def preempt(self) -> Preemption:
        """40 jobs of one slot run; five of eight slots that come before them are submitted."""
        raise Lacks("has none")


def run(*command: object, env: Mapping[str, str] | None = None, **options: object) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(
        [str(each) for each in command],
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    return str(done.stdout).strip()


def until(found: Callable[[], object], what: str) -> None:
    deadline = perf_counter() + PATIENCE
    while not found():
        assert perf_counter() < deadline, f"not so within {PATIENCE:.0f} s: {what}"
        sleep(LOOK)


def rate(number: int, submit: Callable[[], object], is_empty: Callable[[], bool]) -> float:
    """Jobs a second from before the submission until none is left."""
    started = perf_counter()
    submit()
    until(is_empty, f"{number} jobs have ended")
    return number / (perf_counter() - started)


class Stage:
    """The two programs of a preemption, and the file into which they write."""

    def __init__(self, home: Path) -> None:
        self.lines = home / "lines"
        self.lines.touch()
        self.narrow, self.wide = home / "narrow.sh", home / "wide.sh"
        self.narrow.write_text(NARROW)
        self.wide.write_text(WIDE_ONE)

    def play(
        self, submit_narrow: Callable[[], None], submit_wide: Callable[[], None]
    ) -> Preemption:
        """The narrow ones run when this begins, and run again when it ends."""
        submit_narrow()
        until(lambda: len(self._times("narrow")) >= SLOTS, "all narrow jobs run")
        asked = time()
        submit_wide()
        until(lambda: len(self._times("ended")) == SLOTS // WIDE, "all wide jobs have ended")
        until(lambda: len(self._times("narrow")) >= 2 * SLOTS, "all narrow jobs run again")
        starts, free = self._times("narrow"), self._times("ended")[-1]
        return Preemption(
            started=self._times("wide")[-1] - asked,
            stopped=len(starts) - SLOTS,
            back=starts[-1] - free,
        )

    def _times(self, word: str) -> list[float]:
        lines = [line.split() for line in self.lines.read_text().splitlines()]
        return sorted(float(line[1]) for line in lines if line[0] == word)

"""The next step of a supervisor with an attempt: wait, ask it to stop, or kill it. Pure.

The first reason to end is the cause. Only the lease has no grace.
"""

from __future__ import annotations

from typing import TypedDict

# The grace after SIGTERM for processes that the work leaves behind when it ends by itself.
LEFTOVERS_GRACE = 2.0

WAIT, ASK, KILL = "wait", "ask", "kill"


class Stop(TypedDict):
    grace: float


class Control(TypedDict):
    """The content of control.json: the agent's wishes."""

    deadline: float | None
    stop: Stop | None


NOTHING_WANTED: Control = {"deadline": None, "stop": None}


class Course:
    """The course of one attempt. `cause` is final once the work's first process has ended."""

    def __init__(self, walltime_ends: float | None, walltime_grace: float) -> None:
        self.cause = "exited"
        self.until: float | None = None  # the instant from which on it is killed
        self._walltime_ends = walltime_ends
        self._walltime_grace = walltime_grace
        self._stop_began: float | None = None
        self._asked = False
        self._killing = False

    def next(self, now: float, control: Control, running: bool) -> str:
        """The next action; `running`: the work's first process has not ended."""
        stop = control["stop"]
        if control["deadline"] is not None and now >= control["deadline"]:
            self._begin("lease", now, running)
        if stop is not None:
            if self._stop_began is None:
                self._stop_began = now
            self._begin("stopped", self._stop_began + stop["grace"], running)
        if self._walltime_ends is not None and now >= self._walltime_ends:
            self._begin("walltime", self._walltime_ends + self._walltime_grace, running)
        if not running and self.until is None:
            self.until = now + LEFTOVERS_GRACE
        if self.until is None:
            return WAIT
        if self._killing or now >= self.until:
            self._killing = True
            if running and self.cause == "stopped":
                self.cause = "killed"
            return KILL
        asked, self._asked = self._asked, True
        return WAIT if asked else ASK

    def wakes_at(self, now: float, control: Control, at_least: float) -> float:
        """The latest instant of the next decision."""
        instants = (self.until, control["deadline"], self._walltime_ends)
        later = [each for each in instants if each is not None and each > now]
        return min([now + at_least, *later])

    def _begin(self, cause: str, until: float, running: bool) -> None:
        if running and self.cause == "exited":
            self.cause = cause
        self.until = until if self.until is None else min(self.until, until)

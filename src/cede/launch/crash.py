"""Crash points: the supervisor, or the template that forks it, dies at a named point, so that tests
can examine what is left (K6, K10, K11).

`CEDE_SUPERVISOR_CRASH=fork_after` and the like. Without the variable nothing here ever happens.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "CEDE_SUPERVISOR_CRASH"
POINT = os.environ.get(VARIABLE)
# Before a supervisor has taken over: the template dies, or the fork itself.
FORK_POINTS = ("taking_over", "fork_before", "fork_after")
LAUNCH_POINTS = ("template_before", "template_after", "template_forked", *FORK_POINTS)
POINTS = (
    "group_before", "group_after",
    "started_before", "started_after",
    "kill_before", "kill_after",
    "exit_before", "exit_written", "exit_after",
)  # fmt: skip


def at(point: str, process: int | None = None) -> None:
    """Die here if this is the point; or let another process die."""
    assert point in POINTS or point in LAUNCH_POINTS, point
    if point == POINT:
        os.kill(process or os.getpid(), signal.SIGKILL)

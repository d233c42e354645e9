"""The supervisor dies on purpose at a named point, so that tests can look at what is left (K6, K10,
K11).

`CEDE_SUPERVISOR_CRASH=fork_after` and the like. Without the variable nothing here ever happens.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "CEDE_SUPERVISOR_CRASH"
POINTS = (
    "group_before", "group_after",
    "fork_before", "fork_after",
    "started_before", "started_after",
    "kill_before", "kill_after",
    "exit_before", "exit_written", "exit_after",
)  # fmt: skip


def at(point: str) -> None:
    assert point in POINTS, point
    if os.environ.get(VARIABLE) == point:
        os.kill(os.getpid(), signal.SIGKILL)

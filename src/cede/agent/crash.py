"""Named points at which tests let the agent die (K5 to K7).

`CEDE_AGENT_CRASH=journal_after`, with `:n` for the n-th time it is reached. Without the variable
nothing here ever happens.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "CEDE_AGENT_CRASH"
POINTS = (
    "journal_before", "journal_after",
    "launch_before", "launch_after",
    "report_before", "report_after",
)  # fmt: skip

_reached: dict[str, int] = {}


def at(point: str) -> None:
    assert point in POINTS, point
    wanted, _, number = os.environ.get(VARIABLE, "").partition(":")
    if wanted == point:
        _reached[point] = _reached.get(point, 0) + 1
        if _reached[point] == int(number or 1):
            os.kill(os.getpid(), signal.SIGKILL)

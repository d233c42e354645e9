"""Named points at which tests let the server die (K1 to K4, K7 to K17).

`CEDE_CRASH_POINT=before_commit | during_commit | after_commit`, with `:n` for the n-th commit of
this run; `orders_sent`, before new orders are sent to an agent (K3); `reports_taken`, when an
agent's reports are committed and before the agent is told so (K4, K7, K11, K14). Without the
variable nothing here is ever called.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping

from cede.model.errors import Invalid

VARIABLE = "CEDE_CRASH_POINT"
POINTS = ("before_commit", "during_commit", "after_commit", "orders_sent", "reports_taken")


def crash_hook(environ: Mapping[str, str]) -> Callable[[str], None] | None:
    """Return the function to call at every point; None unless a crash is asked for."""
    given = environ.get(VARIABLE)
    if not given:
        return None
    point, _, number = given.partition(":")
    if point not in POINTS or not (number or "1").isdecimal():
        raise Invalid(VARIABLE, f"must be one of {', '.join(POINTS)}, optionally with :n")
    left = int(number or 1)

    def at(reached: str) -> None:
        nonlocal left
        if reached == point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return at

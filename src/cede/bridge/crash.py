"""Named points before, in and after a call to the cluster, at which tests let the bridge die.

`CEDE_BRIDGE_CRASH=sbatch_in`, with `:n` for the n-th time it is reached. Without the variable
nothing here ever happens.
"""

from __future__ import annotations

import os
import signal
import threading

VARIABLE = "CEDE_BRIDGE_CRASH"

_reached: dict[str, int] = {}
_lock = threading.Lock()


def at(point: str) -> None:
    wanted, _, number = os.environ.get(VARIABLE, "").partition(":")
    if wanted != point:
        return
    with _lock:
        _reached[point] = _reached.get(point, 0) + 1
        if _reached[point] == int(number or 1):
            os.kill(os.getpid(), signal.SIGKILL)

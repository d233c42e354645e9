"""Document 004's price of a victim straight from the algorithm of its own system.

The oracle of others: it shares no code with what it checks, and knows neither prices nor shields of
ours. Times are seconds.
"""

from __future__ import annotations

from tests.classes.cases import Holder


def cost(holder: Holder, threshold: float) -> float:
    elapsed = whole_minutes(holder.age or 0)
    if holder.checkpoint == "none":
        saving = len(holder.nodes) * elapsed
    else:
        saving = 5 if holder.checkpoint == "auto" else 10
    both = saving + end_value(elapsed, whole_minutes(holder.walltime or 0), threshold)
    return both * 0.5 if holder.bursting else both


def whole_minutes(seconds: int) -> int:
    return int(seconds / 60)  # towards 0, also what is negative


def end_value(elapsed: int, walltime: int, threshold: float) -> float:
    if walltime < 1:
        return 0.0
    used = elapsed / walltime
    if used >= threshold:
        return 1000.0
    return 1.0 if used < 0.1 else used * 100

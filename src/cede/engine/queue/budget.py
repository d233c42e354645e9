"""The effect of a budget's used part on a score.

A budget is soft: a tenant beyond it still runs, behind tenants within theirs.
"""

from __future__ import annotations

import math

# Up to the first part of a budget there is no penalty; from the second on it is the largest.
FREE, SPENT = 0.8, 1.2
LEAST = 0.05


def penalty(used: float | None) -> float:
    """The factor on a score: 1 up to 80 % of a budget, 0.05 from 120 % on, and along a cosine
    between, so that there is no sudden step.
    """
    if used is None or used <= FREE:
        return 1.0
    if used > SPENT:
        return LEAST
    return LEAST + (1 - LEAST) * (1 + math.cos(math.pi * (used - FREE) / (SPENT - FREE))) / 2

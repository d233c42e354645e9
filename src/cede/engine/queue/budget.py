"""What the used part of a budget does to a score.

A budget is soft: a tenant that is past it still runs, behind those that are not.
"""

from __future__ import annotations

import math

# Up to the first part of a budget nothing happens; from the second on it is as bad as it gets.
FREE, SPENT = 0.8, 1.2
LEAST = 0.05


def penalty(used: float | None) -> float:
    """What a score is multiplied by: 1 up to 80 % of a budget, 0.05 from 120 % on, and along a
    cosine between, so that nobody falls off an edge.
    """
    if used is None or used <= FREE:
        return 1.0
    if used > SPENT:
        return LEAST
    return LEAST + (1 - LEAST) * (1 + math.cos(math.pi * (used - FREE) / (SPENT - FREE))) / 2

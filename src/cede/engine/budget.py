"""How much of its budget somebody has used, and what that does to a score.

A budget is soft: who is past it still runs, behind those who are not. What counts are runs that
began inside a rolling window, so that a budget renews itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from cede.model.bounds import HOUR

WINDOW_DEFAULT = 90 * 24 * HOUR
# Up to the first part of a budget nothing happens; from the second on it is as bad as it gets.
FREE, SPENT = 0.8, 1.2
LEAST = 0.05


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt that held nodes. `gpus` is of all its nodes; a node of which nothing is known
    counts as one.
    """

    started_at: int
    ended_at: int | None  # None: it still runs
    nodes: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Budget:
    """Hours that may be used in the window; None: as many as one likes."""

    gpu_hours: float | None = None
    node_hours: float | None = None


def used_of(
    budget: Budget, runs: Iterable[Run], now: int, window: int = WINDOW_DEFAULT
) -> float | None:
    """The part of a budget that is used; None where there is none."""
    if budget.gpu_hours is None and budget.node_hours is None:
        return None
    gpu_time = node_time = 0
    for run in runs:
        if now - window <= run.started_at <= now:
            lasted = (now if run.ended_at is None else run.ended_at) - run.started_at
            gpu_time += lasted * run.gpus
            node_time += lasted * run.nodes
    parts = ((gpu_time, budget.gpu_hours), (node_time, budget.node_hours))
    return max(_part(time, hours) for time, hours in parts if hours is not None)


def _part(time: int, hours: float) -> float:
    if hours > 0:
        return time / HOUR / hours
    return math.inf if time else 0.0


def penalty(used: float | None) -> float:
    """What a score is multiplied by: 1 up to 80 % of a budget, 0.05 from 120 % on, and along a
    cosine between, so that nobody falls off an edge.
    """
    if used is None or used <= FREE:
        return 1.0
    if used > SPENT:
        return LEAST
    return LEAST + (1 - LEAST) * (1 + math.cos(math.pi * (used - FREE) / (SPENT - FREE))) / 2

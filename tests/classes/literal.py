"""Document 004's choice of victims straight from the algorithm of its own system.

The oracle of others: it shares no code with what it checks, and knows neither prices nor shields of
ours. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.classes.cases import Holder


@dataclass(frozen=True)
class Choice:
    """`victims` is None if there is no way; `freed` is then what could be freed."""

    victims: list[int] | None
    costs: list[float]
    freed: list[str]


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


def choose(
    holders: Sequence[Holder],
    preemption_class: int,
    nodes: int,
    max_victims: int = 3,
    threshold: float = 0.9,
) -> Choice:
    """Greedy: the cheapest first, ties in the order given, whole holders only, none given back."""
    eligible = [
        each
        for each in holders
        if each.preemption_class < preemption_class and each.running and not each.sensitive
    ]
    chosen: list[Holder] = []
    freed: list[str] = []
    for each in sorted(eligible, key=lambda one: cost(one, threshold)):
        if len(freed) >= nodes or len(chosen) >= max_victims:
            break
        chosen.append(each)
        freed += each.nodes
    if len(freed) < nodes:
        return Choice(None, [], freed)
    return Choice([each.id for each in chosen], [cost(each, threshold) for each in chosen], freed)

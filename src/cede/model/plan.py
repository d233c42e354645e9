"""What one pass decided, in the order in which the decisions hold one after another."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from cede.model.reason import Reason


@dataclass(frozen=True, slots=True)
class Grant:
    request_id: str
    pool_id: str
    allocation_id: str
    earmarked: bool = False


@dataclass(frozen=True, slots=True)
class Preemption:
    beneficiary_id: str | None  # nobody's, where work is above a limit
    pool_id: str
    victims: tuple[str, ...]  # allocation ids
    reason: Reason
    cost: float = 0
    weighed: tuple[dict[str, Any], ...] = ()  # the candidates, if they were asked for


@dataclass(frozen=True, slots=True)
class Rejection:
    request_id: str
    reason: Reason


Decision = Grant | Preemption | Rejection


@dataclass(slots=True)
class Plan:
    """The decisions of one pass and when the next one is due by itself."""

    now: int
    weigh: bool = False  # whether to say whom each taking weighed
    decisions: list[Decision] = field(default_factory=list)
    changed: bool = False
    again: bool = False  # another pass is due at once
    next_timer: int | None = None
    # Whether running work should save itself: how often each answer was given, by pool.
    judged: Counter[tuple[str, str]] = field(default_factory=Counter)

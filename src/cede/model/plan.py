"""What one pass decided, in the order in which the decisions hold one after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cede.model.allocation import Allocation
from cede.model.amounts import Amounts
from cede.model.reason import Reason
from cede.model.request import Request


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
    weighed: tuple[dict[str, Any], ...] = ()  # the candidates, where price decides


@dataclass(frozen=True, slots=True)
class Rejection:
    request_id: str
    reason: Reason


Decision = Grant | Preemption | Rejection


Standing = tuple[int, int]


class Stopped(NamedTuple):
    """A holder as it was before a pass stopped it, and where it stood."""

    holder: Allocation
    standing: Standing


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody wants who is told to stop and comes back, and where it will wait then: before
    everybody below its standing and, with an age, before younger ones of the same.
    """

    policy_id: str
    amounts: Amounts
    standing: Standing
    age: tuple[int, int] | None

    def before(self, standing: Standing, age: tuple[int, ...]) -> bool:
        if self.standing == standing and self.age is not None:
            return self.age < age
        return self.standing > standing


@dataclass(slots=True)
class Plan:
    """The decisions of one pass and when the next one is due by itself."""

    now: int
    decisions: list[Decision] = field(default_factory=list)
    changed: bool = False
    again: bool = False  # another pass is due at once
    next_timer: int | None = None
    # What a pass knows of itself while it decides, and nobody afterwards.
    # What it may still take back, by allocation: requests as they were before they were granted,
    # and holders as they were before they were stopped.
    granted: MutableMapping[str, Request] = field(default_factory=dict, repr=False, compare=False)
    stopped: MutableMapping[str, Stopped] = field(default_factory=dict, repr=False, compare=False)
    # Takings that defeat themselves: waiter and holder, who would have taken it back at once; or
    # what the holder is known by, where others are as good as it.
    in_vain: set[tuple[str, Any]] = field(default_factory=set, repr=False, compare=False)
    # What stood when they were tried once more.
    outcomes: set[frozenset[str]] = field(default_factory=set, repr=False, compare=False)
    # By pool and allocation: what is kept for those who are told to stop and come back.
    wanted: dict[str, dict[str, Wanted]] = field(default_factory=dict, repr=False, compare=False)
    # By pool: to whom it promised something.
    promised: dict[str, dict[str, None]] = field(default_factory=dict, repr=False, compare=False)
    began: int = field(default=0, repr=False, compare=False)  # the index of the state before it
    took_back: bool = field(default=False, repr=False, compare=False)

    def mark(self) -> tuple[int, bool, bool]:
        """Where the plan is now, to go back to; what it may take back goes back with the state."""
        return len(self.decisions), self.again, self.took_back

    def undo(self, mark: tuple[int, bool, bool]) -> None:
        """Back to the mark; what was seen to be in vain stays known."""
        length, self.again, self.took_back = mark
        del self.decisions[length:]

    # Whether running work should save itself: how often each answer was given, by pool.
    judged: Counter[tuple[str, str]] = field(default_factory=Counter)

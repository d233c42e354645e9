"""The decisions of one pass, in the order in which they apply."""

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
    beneficiary_id: str | None  # None: the holders are above a limit
    pool_id: str
    victims: tuple[str, ...]  # allocation ids
    reason: Reason
    cost: float = 0
    weighed: tuple[dict[str, Any], ...] = ()  # the candidates, if price decides


@dataclass(frozen=True, slots=True)
class Rejection:
    request_id: str
    reason: Reason


Decision = Grant | Preemption | Rejection


Standing = tuple[int, int]

# A waiter and a holder that it does not stop: the holder's id, or its key if others are equivalent.
Barred = tuple[str, Any]
ANY = ""  # every waiter, or whatever it may be promised


class Refused(NamedTuple):
    """A waiter for which nothing is freed in a pool, because these requests would get it."""

    request_id: str
    pool_id: str
    instead: tuple[str, ...]


class Undone(NamedTuple):
    """A grant of this pass that was undone for a waiter: its standing and its key among holders."""

    waiter_id: str
    request_id: str
    pool_id: str
    standing: Standing
    kind: Any


class Stopped(NamedTuple):
    """A holder as it was before a pass stopped it, and its standing."""

    holder: Allocation
    standing: Standing


@dataclass(frozen=True, slots=True)
class Wanted:
    """The demand of a stopped holder that comes back, and its place in the queue then: before all
    waiters of lower standing and, with an age, before younger ones of equal standing.
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
    """The decisions of one pass, and when the next pass is due by itself."""

    now: int
    decisions: list[Decision] = field(default_factory=list)
    changed: bool = False
    again: bool = False  # another pass is due at once
    next_timer: int | None = None
    # The pass's own working data; unused afterwards. What the pass may still take back, by
    # allocation: requests before they were granted, and holders before they were stopped.
    granted: MutableMapping[str, Request] = field(default_factory=dict, repr=False, compare=False)
    stopped: MutableMapping[str, Stopped] = field(default_factory=dict, repr=False, compare=False)
    undone: MutableMapping[str, Undone] = field(default_factory=dict, repr=False, compare=False)
    # What rehearsals of this pass found to come to nothing, and for whom.
    regretted: frozenset[Barred] = field(default=frozenset(), repr=False, compare=False)
    refused: list[Refused] = field(default_factory=list, repr=False, compare=False)
    # That, and takings that defeat themselves: the holder would take the units back at once.
    in_vain: set[Barred] = field(default_factory=set, repr=False, compare=False)
    # The sets of stopped holders and earmark owners beside which they were tried again.
    outcomes: set[frozenset[str]] = field(default_factory=set, repr=False, compare=False)
    # By pool and allocation: the demand that is kept for a stopped holder that comes back.
    wanted: dict[str, dict[str, Wanted]] = field(default_factory=dict, repr=False, compare=False)
    # By pool: the requests that this pass promised something to.
    promised: dict[str, dict[str, None]] = field(default_factory=dict, repr=False, compare=False)
    began: int = field(default=0, repr=False, compare=False)  # the index of the state before it
    took_back: bool = field(default=False, repr=False, compare=False)

    def mark(self) -> tuple[int, bool, bool]:
        """A place in the plan to go back to; what the plan may take back is restored with the
        state.
        """
        return len(self.decisions), self.again, self.took_back

    def undo(self, mark: tuple[int, bool, bool]) -> None:
        """Go back to a mark; takings that were found to be in vain stay known."""
        length, self.again, self.took_back = mark
        del self.decisions[length:]

    # The broker's answers to whether running work should save itself: the count of each, by pool.
    judged: Counter[tuple[str, str]] = field(default_factory=Counter)

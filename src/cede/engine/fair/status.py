"""Whether an element has its fair share, its satisfaction, and its starvation.

All functions are pure: the time, in milliseconds, and the previous state are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum, auto

from cede.engine.fair.curve import Vector, smaller, times
from cede.engine.fair.settings import FairSettings
from cede.model.copying import replace

SMALL = 1e-9
NEARLY = 1e-4
SATISFIED = 1e9  # the ratio of an element without a fair share


class Status(StrEnum):
    NORMAL = auto()
    BELOW_FAIR_SHARE = auto()


class Starving(StrEnum):
    NON_STARVING = auto()
    STARVING = auto()
    AGGRESSIVELY_STARVING = auto()

    @property
    def degree(self) -> int:
        """How much that is, to compare two."""
        return _DEGREES[self]


_DEGREES = {each: at for at, each in enumerate(Starving)}


@dataclass(frozen=True, slots=True)
class Situation:
    """The shares of an element that decide its status."""

    fair: Vector
    demand: Vector
    usage: Vector
    is_request: bool = True
    can_start: bool = True  # it has waiting tasks that may run
    smallest: Vector = ()  # the share of its smallest task


def exceeds(a: Iterable[float], b: Iterable[float], blocked: Iterable[bool]) -> bool:
    """Whether `a` is above `b`, by more than rounding, in every key that is not blocked; in any, if
    all are blocked.
    """
    every = list(zip(a, b, blocked, strict=True))
    free = [x > y + SMALL for x, y, is_blocked in every if not is_blocked]
    return all(free) if free else any(x > y + SMALL for x, y, _ in every)


def blocked_keys(fair: Vector, demand: Vector) -> list[bool]:
    """Keys of which the fair share is the whole demand: more of them would not help."""
    return [share + SMALL >= wanted for share, wanted in zip(fair, demand, strict=True)]


def status_of(situation: Situation, settings: FairSettings) -> Status:
    fair, demand = situation.fair, situation.demand
    if situation.is_request and not situation.can_start:
        return Status.NORMAL
    blocked = blocked_keys(fair, demand)
    tolerance = settings.fair_share_starvation_tolerance
    if situation.is_request:
        pairs = zip(fair, demand, strict=True)
        if all(share + NEARLY >= wanted for share, wanted in pairs):
            tolerance = 1.0  # its share is its whole demand, so no tolerance applies
        elif settings.enable_absolute_fair_share_starvation_tolerance:
            short = [a - b for a, b in zip(fair, situation.usage, strict=True)]
            if situation.smallest and not exceeds(short, situation.smallest, blocked):
                return Status.NORMAL
    due = smaller(times(fair, tolerance), demand)
    is_below = exceeds(due, situation.usage, blocked)
    return Status.BELOW_FAIR_SHARE if is_below else Status.NORMAL


def satisfaction(fair: Vector, demand: Vector, usage: Vector) -> float:
    """The used part of the fair share: below 1 something is missing, above 1 it is exceeded."""
    if all(share <= SMALL for share in fair):
        return SATISFIED
    pairs = list(zip(usage, fair, strict=True))
    if any(used > share + SMALL for used, share in pairs):
        ratios = [used / share if share else (SATISFIED if used else 0.0) for used, share in pairs]
        return min(SATISFIED, max(ratios))
    blocked = blocked_keys(fair, demand)
    if all(blocked):
        return min(used / share if share else 1.0 for used, share in pairs)
    free = [pair for pair, is_blocked in zip(pairs, blocked, strict=True) if not is_blocked]
    return max((used / share for used, share in free if share > 0), default=0.0)


@dataclass(frozen=True, slots=True)
class Starvation:
    """The starvation of an element, and the instant since when it has been below its share."""

    status: Starving = Starving.NON_STARVING
    since: int | None = None


def starve(state: Starvation, is_below: bool, now: int, settings: FairSettings) -> Starvation:
    """The next state. No element starves at the first check, even with a time-out of 0."""
    if not is_below:
        return Starvation()
    if state.since is None:
        return Starvation(since=now)
    lasted, status = now - state.since, state.status
    aggressive = settings.enable_aggressive_starvation
    if aggressive and lasted > settings.fair_share_aggressive_starvation_timeout:
        status = Starving.AGGRESSIVELY_STARVING
    elif lasted > settings.fair_share_starvation_timeout or (
        status is Starving.AGGRESSIVELY_STARVING and not aggressive
    ):
        status = Starving.STARVING
    return state if status is state.status else replace(state, status=status)

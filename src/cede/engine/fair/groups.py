"""The three groups of a request's allocations, by the stage in which others may preempt them.

The allocations stand in the order of their last start; the front of the order fills the request's
fair share, and is safe. One cut is at the aggressive threshold's part of the share, one at the
other's. By default an allocation is judged by the sum before it, so that the one that crosses a cut
is still on the safe side; `consider_allocation_on_fair_share_bound_preemptible` includes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from math import inf

from cede.engine.fair.curve import Vector, times
from cede.engine.fair.guarantees import as_share
from cede.engine.fair.settings import FairSettings
from cede.engine.fair.status import SMALL, blocked_keys, exceeds
from cede.engine.fair.tree import Numbers


class Group(StrEnum):
    NON_PREEMPTIBLE = auto()
    AGGRESSIVELY_PREEMPTIBLE = auto()
    PREEMPTIBLE = auto()


@dataclass(frozen=True, slots=True)
class Held:
    """One allocation; `started`: when its last work began, or last saved its progress."""

    id: str
    amounts: Numbers
    started: int = 0


@dataclass(frozen=True, slots=True)
class Due:
    """A request's shares, and the totals that they are parts of."""

    fair: Vector
    demand: Vector
    totals: Numbers


def in_order(held: Iterable[Held]) -> list[Held]:
    """Oldest first; saved progress moves an allocation to the end. Ties stay as given."""
    return sorted(held, key=lambda each: each.started)


def split(held: Sequence[Held], due: Due, settings: FairSettings) -> dict[Group, tuple[str, ...]]:
    """The groups of allocations that stand in order, by id."""
    found: dict[Group, list[str]] = {group: [] for group in Group}
    for each, group in zip(held, groups_of(held, due, settings), strict=True):
        found[group].append(each.id)
    return {group: tuple(ids) for group, ids in found.items()}


@dataclass(frozen=True, slots=True)
class Line:
    """The cut of a part of a share through allocations in order.

    Covered allocations come before all others, at any amounts.
    """

    bound: Vector
    blocked: tuple[bool, ...]
    totals: Numbers
    inclusive: bool

    def covers(self, before: Numbers, after: Numbers) -> bool:
        """Whether an allocation is on the safe side, with so much used before and after it."""
        if not self.inclusive:
            return exceeds(self.bound, as_share(before, self.totals), self.blocked)
        reached = tuple([each + 2 * SMALL for each in self.bound])  # exactly the bound is within it
        return exceeds(reached, as_share(after, self.totals), self.blocked)


def lines(due: Due, settings: FairSettings) -> tuple[Line, Line]:
    """The ends of the safest group and of the next."""
    blocked = tuple(blocked_keys(due.fair, due.demand))
    inclusive = settings.consider_allocation_on_fair_share_bound_preemptible
    safe = times(due.fair, settings.aggressive_preemption_satisfaction_threshold)
    return (
        Line(safe, blocked, due.totals, inclusive),
        Line(_upper_bound(due, settings), blocked, due.totals, inclusive),
    )


def groups_of(held: Sequence[Held], due: Due, settings: FairSettings) -> list[Group]:
    """The group of each allocation; every group is contiguous in the order."""
    safe, within = lines(due, settings)
    before = dict.fromkeys(due.totals, 0.0)
    groups = []
    for each in held:
        shielded = is_protected(before, settings.non_preemptible_resource_usage_threshold)
        after = {key: used + each.amounts.get(key, 0) for key, used in before.items()}
        if shielded or safe.covers(before, after):
            groups.append(Group.NON_PREEMPTIBLE)
        elif within.covers(before, after):
            groups.append(Group.AGGRESSIVELY_PREEMPTIBLE)
        else:
            groups.append(Group.PREEMPTIBLE)
        before = after
    return groups


def _upper_bound(due: Due, settings: FairSettings) -> Vector:
    """The end of the second group; infinite if the fair share is the whole demand."""
    pairs = zip(due.fair, due.demand, strict=True)
    if any(wanted > SMALL for wanted in due.demand) and all(abs(a - b) <= SMALL for a, b in pairs):
        return (inf,) * len(due.fair)
    return times(due.fair, settings.preemption_satisfaction_threshold)


def is_protected(before: Numbers, threshold: Numbers) -> bool:
    """Whether the next allocation is protected at any share: the use `before` it is below the
    threshold.
    """
    if not threshold:
        return False
    return all(used < threshold.get(key, inf) for key, used in before.items())

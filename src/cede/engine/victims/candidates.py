"""Candidates for stopping, gathered into groups that help alike.

Of holders on the same nodes that free the same amounts for the same goals, and are of one rank, any
is as good as another but for what it costs. So only the cheapest few of each group matter, as many
as there may be victims, however many run.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from sys import float_info
from typing import NamedTuple

from cede.engine.rights.cover import Holding
from cede.engine.victims.goals import Goal
from cede.model.amounts import Amounts
from cede.model.shape import Footprint

Tie = tuple[int, str]
Kind = tuple[object, ...]


class Candidate(NamedTuple):
    """A holder that may be stopped, and what that would cost; a price is never negative."""

    holding: Holding
    price: float
    rank: int
    checkpoint: float  # what saving its work would cost

    @property
    def tie(self) -> Tie:
        """Among equals the newest goes, because it loses the least work."""
        return (-self.holding.index, self.holding.id)


def order(candidate: Candidate) -> tuple[float, float, Tie]:
    """Who of a group goes first."""
    return (candidate.price, candidate.checkpoint, candidate.tie)


@dataclass(slots=True)
class Group:
    """The cheapest few of those that help alike, in order."""

    shape: Kind  # what they are, wherever they sit
    footprint: Footprint
    members: list[Candidate] = field(default_factory=list)
    gains: tuple[int, ...] | None = None  # how much one alone brings to each goal, once tried

    def probe(self, goals: Sequence[Goal]) -> bool:
        """Find the gains, and whether one of these alone is enough."""
        holding = self.members[0].holding
        before = [goal.left for goal in goals]
        for goal in goals:
            goal.take_away(holding, 1)
        self.gains = tuple(was - goal.left for was, goal in zip(before, goals, strict=True))
        enough = all(goal.met for goal in goals)
        for goal in goals:
            goal.take_away(holding, -1)
        return enough


class Gathering:
    """The groups of some candidates, by the price of their first; and only those that matter.

    Left out are those that help nobody, and those dearer than one who is enough alone, because they
    are in no cheapest set.
    """

    def __init__(self, goals: Sequence[Goal], most: int, probes: int) -> None:
        """At most `most` members to a group; the first `probes` groups are tried alone."""
        self.groups: list[Group] = []
        self._goals, self._most, self._probes = goals, most, probes
        self._by_kind: dict[Kind, Group] = {}
        self._by_policy = any(goal.by_policy for goal in goals)
        self._keys = tuple(dict.fromkeys(key for goal in goals for key in goal.keys))

    def add_all(self, candidates: Iterable[Candidate]) -> None:
        enough = float_info.max  # the price of one who is; whoever has no price is beyond it
        alike = self._alike(candidates)
        for members in sorted(alike, key=lambda members: members[0].price):
            if members[0].price > enough:
                break
            group = self._group(members[0])
            if group is None:
                continue
            if group.members:
                members = sorted([*group.members, *members], key=order)[: self._most]
            group.members = members
            if group.gains is None and len(self.groups) <= self._probes:
                enough = members[0].price if group.probe(self._goals) else enough

    def _alike(self, candidates: Iterable[Candidate]) -> Iterable[list[Candidate]]:
        """Of those that look alike the cheapest few, in order.

        This reads every candidate, and so it is most of the time of a search. Reading them as they
        come is several times faster than by price, for which all of memory is visited.
        """
        most, pick = self._most, itemgetter(*self._keys) if self._keys else _nothing
        by_policy = not all(goal.everywhere for goal in self._goals)
        kept: dict[Kind, list[Candidate]] = {}
        dearest: dict[Kind, float] = {}  # of those kept, where no more are needed
        for candidate in candidates:
            holding, price, rank, _ = candidate
            try:
                look: Kind = (rank, pick(holding.amounts))
                if holding.footprint:
                    look = (*look, holding.footprint, pick(holding.each))
            except KeyError:
                look = (rank, holding.footprint, *self._read(holding))
            if by_policy:
                look = (*look, holding.policy_id)
            try:
                if price > dearest[look]:
                    continue
            except KeyError:
                pass
            members = kept.setdefault(look, [])
            if len(members) < most:
                members.append(candidate)
                if len(members) < most:
                    continue
                members.sort(key=order)
            elif order(candidate) < order(members[-1]):
                insort(members, candidate, key=order)
                members.pop()
            dearest[look] = members[-1].price
        for members in kept.values():
            if len(members) < most:
                members.sort(key=order)
        return kept.values()

    def _read(self, holding: Holding) -> Kind:
        """What counts of what a holder frees, and of what each of its tasks does."""
        amounts, each = holding.amounts, holding.each
        return (tuple(map(amounts.get, self._keys)), tuple(map(each.get, self._keys)))

    def _group(self, candidate: Candidate) -> Group | None:
        """Where one belongs; nowhere, if no goal wants it.

        Whether holders of another policy help alike is seen from who wants them.
        """
        holding = candidate.holding
        wanted = tuple(goal.wants(holding) for goal in self._goals)
        if not any(wanted):
            return None
        shape: Kind = (candidate.rank, *self._read(holding), wanted)
        if self._by_policy:
            shape = (*shape, holding.policy_id)
        footprint = tuple(sorted(holding.footprint))
        group = self._by_kind.get((shape, footprint))
        if group is None:
            group = self._by_kind[shape, footprint] = Group(shape, footprint)
            self.groups.append(group)
        return group


def _nothing(amounts: Amounts) -> None:
    """What is read of amounts where no key counts."""

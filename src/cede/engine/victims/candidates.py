"""Candidates for stopping, gathered into groups that help alike.

Holders on the same nodes that free the same amounts for the same goals, and are of one rank, differ
in cost only. So only the cheapest few of each group matter, as many as there may be victims, at any
number of holders.
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
    """A holder that may be stopped, and the price of stopping it, which is never negative."""

    holding: Holding
    price: float
    rank: int
    checkpoint: float  # the cost of saving its work

    @property
    def tie(self) -> Tie:
        """The order among equals: the newest is stopped first, as it loses the least work."""
        return (-self.holding.index, self.holding.id)


def order(candidate: Candidate) -> tuple[float, float, Tie]:
    """The order inside a group: the first is stopped first."""
    return (candidate.price, candidate.checkpoint, candidate.tie)


@dataclass(slots=True)
class Group:
    """The cheapest few of the candidates that help alike, in order."""

    shape: Kind  # their common properties, apart from their nodes
    footprint: Footprint
    members: list[Candidate] = field(default_factory=list)
    gains: tuple[int, ...] | None = None  # the gain of one alone for each goal, once tried

    def probe(self, goals: Sequence[Goal]) -> bool:
        """Compute the gains; return whether one member alone is enough."""
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
    """The groups of some candidates that matter, by the price of their first member.

    Candidates that help no goal, or cost more than one that is enough alone, are left out: they
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
        enough = float_info.max  # the price of one that is enough alone; below an infinite price
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
        """The cheapest few of each kind that looks alike, in order.

        This reads every candidate, so it takes most of the time of a search. Reading them in the
        given order is several times faster than by price, which jumps through all of memory.
        """
        most, pick = self._most, itemgetter(*self._keys) if self._keys else _nothing
        by_policy = not all(goal.everywhere for goal in self._goals)
        kept: dict[Kind, list[Candidate]] = {}
        dearest: dict[Kind, float] = {}  # the highest price kept of each kind that is complete
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
        """The amounts of the goals' keys that a holder frees, and that each of its tasks frees."""
        amounts, each = holding.amounts, holding.each
        return (tuple(map(amounts.get, self._keys)), tuple(map(each.get, self._keys)))

    def _group(self, candidate: Candidate) -> Group | None:
        """The group of a candidate; None if no goal wants it.

        The goals that want a holder show whether holders of other policies help alike.
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
    """Reads nothing of amounts: for goals without keys."""

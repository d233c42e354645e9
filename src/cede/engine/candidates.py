"""Candidates for stopping, gathered into groups that help alike.

Of holders on the same nodes that free the same amounts for the same goals, and are of one rank, any
is as good as another but for what it costs. So only the cheapest few of each group matter, as many
as there may be victims, however many run.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from sys import float_info
from typing import NamedTuple

from cede.engine.share import Holding
from cede.engine.victims import Goal
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

    def probe(self, goals: Sequence[Goal], holding: Holding) -> bool:
        """Find the gains, and whether one of these alone is enough."""
        before = [goal.left for goal in goals]
        for goal in goals:
            goal.take_away(holding, 1)
        self.gains = tuple(was - goal.left for was, goal in zip(before, goals, strict=True))
        enough = all(goal.met for goal in goals)
        for goal in goals:
            goal.take_away(holding, -1)
        return enough


class Gathering:
    """The groups, by the price of their first, without those that help nobody.

    In `cheap` are their first members by price, and those of one price as they came.
    """

    def __init__(self, goals: Sequence[Goal], most: int, probes: int) -> None:
        """At most `most` members to a group; the first `probes` groups are tried alone."""
        self.groups: list[Group] = []
        self.cheap: list[Candidate] = []
        self._goals, self._most, self._probes = goals, most, probes
        self._keys = tuple(dict.fromkeys(key for goal in goals for key in goal.keys))
        self._by_kind: dict[Kind, Group] = {}
        self._enough = float_info.max  # the price of one that is enough alone; no price is beyond

    def add_all(self, candidates: Iterable[Candidate]) -> None:
        """Whoever is dearer than one that is enough alone is in no cheapest set, and stays out."""
        known: dict[Kind, Group | None] = {}
        keys, pick, most = self._keys, _picker(self._keys), self._most
        for candidate in sorted(candidates, key=attrgetter("price")):
            holding, price, rank, _ = candidate
            if price > self._enough:
                break
            footprint = holding.footprint
            try:
                freed = pick(holding.amounts)
                each = footprint and pick(holding.each)
            except KeyError:
                freed = tuple(map(holding.amounts.get, keys))
                each = footprint and tuple(map(holding.each.get, keys))
            raw = (rank, freed, each, footprint, holding.policy_id)
            try:
                group = known[raw]
            except KeyError:
                group = known[raw] = self._group(raw[:3], candidate)
            if group is None:
                continue
            members = group.members
            if len(members) < most:
                self.cheap.append(candidate)
                insort(members, candidate, key=order)
            elif price == members[-1].price and order(candidate) < order(members[-1]):
                insort(members, candidate, key=order)
                del members[most:]

    def _group(self, shape: Kind, candidate: Candidate) -> Group | None:
        """The group of a first of its kind; none for one that no goal wants.

        Whether a holder of another policy helps alike is seen from who wants it.
        """
        holding = candidate.holding
        wanted = tuple(goal.wants(holding) for goal in self._goals)
        if not any(wanted):
            return None
        footprint = tuple(sorted(holding.footprint))
        kind = (*shape, footprint, wanted)
        group = self._by_kind.get(kind)
        if group is None:
            group = self._by_kind[kind] = Group((*shape, wanted), footprint)
            self.groups.append(group)
            if len(self.groups) <= self._probes and group.probe(self._goals, holding):
                self._enough = min(self._enough, candidate.price)
        return group


def _picker(keys: tuple[str, ...]) -> Callable[[Amounts], object]:
    """Reads the amounts of these keys; fast, because it is asked for every candidate."""
    return itemgetter(*keys) if keys else lambda amounts: None

"""The cheapest victims: of all sets of candidates that would do, the one that costs the least.

A set costs what its victims cost, and something for each of them, so that fewer and larger ones are
preferred. Of sets that cost the same the one whose highest rank is the lowest goes, then the
smaller, then the one that is the cheapest to save, then the newest. Nobody who is not needed can be
in it: without him the set would be as cheap, of no higher rank, and smaller.

Up to a number of groups (`candidates`) every set that could be the best is weighed. Beyond it, what
document 004 does is tried, and what is likely to be better.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from math import fsum, inf
from typing import NamedTuple

from cede.engine.victims.candidates import Candidate, Gathering, Group, Kind, order
from cede.engine.victims.goals import Goal
from cede.engine.victims.subsets import Best, Scale, Subsets
from cede.model import bounds

# Up to so many victims every set is weighed, however long it takes: 64 groups have 50,000 sets.
_EXACT = 3


@dataclass(frozen=True, slots=True)
class VictimSettings:
    """How many may be stopped for one waiter, what each adds to the cost of a set, and up to how
    many groups of candidates every set is weighed.
    """

    max_victims: int = 3
    per_victim_cost: float = 1
    groups_max: int = 64


class Choice(NamedTuple):
    """The cheapest set that would do, if there is one; it is taken if it costs less than `bound`.

    Unless the search was exhaustive, there may be a cheaper one, or one at all.
    """

    best: tuple[Candidate, ...] | None
    cost: float
    bound: float
    exhaustive: bool

    @property
    def victims(self) -> tuple[Candidate, ...] | None:
        """Who is to be stopped; nobody need be is (), and None is that nothing may be done."""
        return None if self.best and self.cost >= self.bound else self.best


def cheapest(
    candidates: Sequence[Candidate],
    goals: Sequence[Goal],
    settings: VictimSettings,
    bound: float = inf,
) -> Choice:
    """Whom to stop so that all goals are met. The goals are left as they were."""
    if all(goal.met for goal in goals):
        return Choice((), 0, bound, exhaustive=True)
    if not settings.max_victims:
        return Choice(None, inf, bound, exhaustive=True)
    gathering = Gathering(goals, settings.max_victims, probes=settings.groups_max)
    gathering.add_all(candidates)
    search = _Search(candidates, goals, gathering.groups, settings)
    exhaustive = search.run()
    best = search.best.victims
    if best is None:
        return Choice(None, inf, bound, exhaustive)
    cost = fsum(part for each in best for part in (each.price, settings.per_victim_cost))
    return Choice(best, cost, bound, exhaustive)


class _Search:
    """One search, from the cheapest attempt to the dearest."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        goals: Sequence[Goal],
        groups: list[Group],
        settings: VictimSettings,
    ) -> None:
        self._goals, self._groups, self._settings = goals, groups, settings
        self._few = len(groups) <= settings.groups_max
        self._exact = self._few and settings.max_victims <= _EXACT
        if self._exact:
            self._by_price = _members(groups)
        else:  # among equals as they came: so document 004 takes them
            priced = (each for each in candidates if each.price < inf)
            self._by_price = sorted(priced, key=lambda each: each.price)
        self.best = Best(goals, Scale(self._by_price, settings.per_victim_cost))

    def run(self) -> bool:
        """Look for the best set; whether all were weighed."""
        self._greedy(self._by_price)
        groups = self._groups if self._few else self._try_alone()
        self._guess(groups)  # the better the first sets, the sooner the rest is out
        if not self._exact:
            self._guess_on_nodes(groups)
        exhaustive = self._weigh(groups[: self._settings.groups_max]) and self._few
        if not exhaustive and self.best.victims:
            self._greedy(self.best.victims)  # one who is not needed may have been weighed first
        return exhaustive

    def _try_alone(self) -> list[Group]:
        """Some groups of every shape, each tried alone."""
        tried = _sample(self._groups, bounds.VICTIM_PROBES_MAX)
        for group in tried:
            if group.probe(self._goals):
                self.best.move(group.members[0], 1)
                self.best.offer(group.members[:1])
                self.best.move(group.members[0], -1)
        return tried

    def _guess(self, groups: Sequence[Group]) -> None:
        """Of those who help alone: the cheapest, those of the best rate, the largest."""
        gain = {id(group): sum(group.gains or ()) for group in groups}
        helpful = [group for group in groups if gain[id(group)]]
        self._greedy(_members(helpful))
        helpful.sort(key=lambda group: group.members[0].price / gain[id(group)])
        self._greedy(each for group in helpful for each in group.members)
        helpful.sort(key=lambda group: -gain[id(group)])
        self._greedy(each for group in helpful for each in group.members)

    def _weigh(self, groups: Sequence[Group]) -> bool:
        steps = inf if self._settings.max_victims <= _EXACT else bounds.VICTIM_STEPS_MAX
        return Subsets(self.best, groups, steps).search(self._settings.max_victims)

    def _greedy(self, candidates: Iterable[Candidate]) -> None:
        """One after the other, if it helps, until it is enough; then those not needed go back."""
        best, taken = self.best, list[Candidate]()
        for candidate in candidates:
            if len(taken) == self._settings.max_victims:
                break
            if best.wanted(candidate):
                best.move(candidate, 1)
                taken.append(candidate)
                if best.met:
                    taken = self._needed(taken)
                    best.offer(taken)
                    break
        for candidate in taken:
            best.move(candidate, -1)

    def _needed(self, taken: list[Candidate]) -> list[Candidate]:
        """Bring back whoever is not needed, the dearest first."""
        kept = list(taken)
        for candidate in sorted(taken, key=order, reverse=True):
            self.best.move(candidate, -1)
            if self.best.met:
                kept.remove(candidate)
            else:
                self.best.move(candidate, 1)
        return kept

    def _guess_on_nodes(self, tried: Iterable[Group]) -> None:
        """Of those who share a node and may make room on it together: the cheapest, the largest."""
        on_node: dict[str, list[Group]] = {}
        for group in self._groups:
            for node_id, _ in group.footprint:
                on_node.setdefault(node_id, []).append(group)
        nodes = dict.fromkeys(node_id for group in tried for node_id, _ in group.footprint)
        for node_id in islice(nodes, bounds.VICTIM_PROBES_MAX):
            if len(on_node[node_id]) > 1:
                members = _members(on_node[node_id])
                self._greedy(members)
                members.sort(key=lambda each: -sum(each.holding.amounts.values()))
                self._greedy(members)


def _members(groups: Iterable[Group]) -> list[Candidate]:
    return sorted((each for group in groups for each in group.members), key=order)


def _sample(groups: Iterable[Group], count: int) -> list[Group]:
    """The cheapest groups of every shape in turn: large holders are few, and dear."""
    seen: dict[Kind, int] = {}
    turns: list[tuple[int, int, Group]] = []
    for at, group in enumerate(groups):
        turn = seen[group.shape] = seen.get(group.shape, -1) + 1
        turns.append((turn, at, group))
    return [group for _, _, group in nsmallest(count, turns)]

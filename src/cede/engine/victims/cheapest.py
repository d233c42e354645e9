"""The cheapest victims: the set of candidates that meets all goals and costs the least.

A set costs the prices of its victims and an amount for each of them, so that fewer and larger ones
are preferred. Among sets of equal cost the order is: the lowest highest rank, the smaller set, the
cheapest to save, the newest. A victim that is not needed cannot be in the best set: without it the
set would cost no more, be of no higher rank, and be smaller.

Up to a number of groups (`candidates`) every set that could be the best is weighed. Beyond it, the
search of document 004 is tried, and sets that are likely to be better.
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

# Up to this many victims every set is weighed, at any duration: 64 groups have 50,000 sets.
_EXACT = 3


@dataclass(frozen=True, slots=True)
class VictimSettings:
    """The most victims of one waiter, the cost that each adds to a set, and the number of groups of
    candidates up to which every set is weighed.
    """

    max_victims: int = 3
    per_victim_cost: float = 1
    groups_max: int = 64


class Choice(NamedTuple):
    """The cheapest set found that meets all goals, if any; it is stopped if it costs less than
    `bound`.

    If the search was not exhaustive there may be a cheaper set, or one where none was found.
    """

    best: tuple[Candidate, ...] | None
    cost: float
    bound: float
    exhaustive: bool

    @property
    def victims(self) -> tuple[Candidate, ...] | None:
        """The holders to stop; () if none need be stopped, None if no set may be."""
        return None if self.best and self.cost >= self.bound else self.best


def cheapest(
    candidates: Sequence[Candidate],
    goals: Sequence[Goal],
    settings: VictimSettings,
    bound: float = inf,
) -> Choice:
    """The holders to stop so that all goals are met. The goals are unchanged afterwards."""
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
    """One search, whose attempts go from quick to slow."""

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
        else:  # equals in the given order, as in document 004
            priced = (each for each in candidates if each.price < inf)
            self._by_price = sorted(priced, key=lambda each: each.price)
        self.best = Best(goals, Scale(self._by_price, settings.per_victim_cost))

    def run(self) -> bool:
        """Search for the best set; return whether all sets were weighed."""
        self._greedy(self._by_price)
        groups = self._groups if self._few else self._try_alone()
        self._guess(groups)  # good first sets exclude others sooner
        if not self._exact:
            self._guess_on_nodes(groups)
        exhaustive = self._weigh(groups[: self._settings.groups_max]) and self._few
        if not exhaustive and self.best.victims:
            self._greedy(self.best.victims)  # drops victims that are not needed
        return exhaustive

    def _try_alone(self) -> list[Group]:
        """Try some groups of every shape, each alone; return them."""
        tried = _sample(self._groups, bounds.VICTIM_PROBES_MAX)
        for group in tried:
            if group.probe(self._goals):
                self.best.move(group.members[0], 1)
                self.best.offer(group.members[:1])
                self.best.move(group.members[0], -1)
        return tried

    def _guess(self, groups: Sequence[Group]) -> None:
        """Try greedy sets of the candidates that help alone: by price, by rate, by gain."""
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
        """Add candidates that help until they are enough, drop those not needed, offer the set."""
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
        """The victims that are needed; the most expensive ones are dropped first."""
        kept = list(taken)
        for candidate in sorted(taken, key=order, reverse=True):
            self.best.move(candidate, -1)
            if self.best.met:
                kept.remove(candidate)
            else:
                self.best.move(candidate, 1)
        return kept

    def _guess_on_nodes(self, tried: Iterable[Group]) -> None:
        """Try greedy sets of candidates on one node, which may make room together: by price, by
        size.
        """
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
    """The cheapest groups of every shape in turn: large holders are few, and expensive."""
    seen: dict[Kind, int] = {}
    turns: list[tuple[int, int, Group]] = []
    for at, group in enumerate(groups):
        turn = seen[group.shape] = seen.get(group.shape, -1) + 1
        turns.append((turn, at, group))
    return [group for _, _, group in nsmallest(count, turns)]

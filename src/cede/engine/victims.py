"""Who must stop so that a waiter starts: the lowest legal holders, no more than needed, or nobody.

Holders are looked at from the lowest rights up; within equal rights from the lowest rank, then the
newest, because it loses the least work. Whatever turns out not to be needed is given back, the most
deserving first, and legality is judged again on the set that will really stop (S7, S8).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from operator import add
from typing import Protocol

from sortedcontainers import SortedList

from cede.engine.books import Books, Place
from cede.engine.patience import Taker, may_take_own, spared
from cede.engine.placement import View, need_of, places_for, slots, suits
from cede.engine.share import Holding
from cede.engine.site import site
from cede.engine.standing import BORROWED, IN_SHARE, standing
from cede.engine.state import State
from cede.model.amounts import Amounts
from cede.model.reason import Code
from cede.model.shape import Form


@dataclass(frozen=True, slots=True)
class Missing:
    """What a waiter misses: of the pool, of the limits above its policy (capacity for those below),
    and in a pool of nodes places for tasks of this form.
    """

    short: Amounts
    under: tuple[tuple[str, Amounts], ...] = ()
    form: Form | None = None

    @property
    def keys(self) -> dict[str, None]:
        every = (self.short, *(amounts for _, amounts in self.under))
        return dict.fromkeys(key for amounts in every for key in amounts)


def find_victims(
    state: State, books: Books, taker: Taker, missing: Missing
) -> list[Holding] | None:
    """The holders to stop so that nothing is missing; None when no legal set does that."""
    goals: list[Goal] = [Shortage(dict(amounts), books, above) for above, amounts in missing.under]
    if missing.form is not None:
        view = site(state, books, taker.standing, promise=True, own=(taker.request.id,))
        goals.append(Clearing(view, missing.form))
    else:
        goals.append(Shortage(dict(missing.short)))
    return choose(goals, _legal(state, books, taker, missing.keys))


def choose(goals: list[Goal], legal: Iterable[Holding]) -> list[Holding] | None:
    """The first of these that meet all goals, without those that turn out not to be needed."""
    chosen: list[Holding] = []
    for holding in legal:
        if any(each.wants(holding) for each in goals):
            chosen.append(holding)
            for goal in goals:
                goal.take_away(holding, 1)
            if all(each.met for each in goals):
                return _give_back(chosen, goals)
    return None


def _give_back(chosen: list[Holding], goals: list[Goal]) -> list[Holding]:
    """Drop whoever is not needed, trying the highest and oldest first."""
    kept = list(chosen)
    for holding in reversed(chosen):
        for goal in goals:
            goal.take_away(holding, -1)
        if all(each.met for each in goals):
            kept.remove(holding)
        else:
            for goal in goals:
                goal.take_away(holding, 1)
    return kept


class Goal(Protocol):
    """Something that victims must bring about."""

    @property
    def keys(self) -> Iterable[str]:
        """What it counts; holders that differ only in other keys help it alike."""

    @property
    def everywhere(self) -> bool:
        """Whether it counts holders of every policy."""

    @property
    def left(self) -> int:
        """How much is missing. Holders without a common node together bring it down by no more than
        the sum of what each would alone.
        """

    @property
    def met(self) -> bool: ...

    def wants(self, holding: Holding) -> bool:
        """Whether stopping this one would help."""

    def take_away(self, holding: Holding, sign: int) -> None:
        """Count a holder out, or in again."""


class Shortage:
    """Amounts that must be freed; under one policy, if it is given."""

    def __init__(
        self, missing: dict[str, int], books: Books | None = None, above: str | None = None
    ) -> None:
        self._missing, self._books, self._above = missing, books, above

    @property
    def keys(self) -> Iterable[str]:
        return self._missing

    @property
    def everywhere(self) -> bool:
        return self._books is None

    @property
    def left(self) -> int:
        return sum(left for left in self._missing.values() if left > 0)

    @property
    def met(self) -> bool:
        return all(left <= 0 for left in self._missing.values())

    def wants(self, holding: Holding) -> bool:
        return self._counts(holding) and any(
            self._missing.get(key, 0) > 0 for key in holding.amounts
        )

    def take_away(self, holding: Holding, sign: int) -> None:
        if self._counts(holding):
            for key, amount in holding.amounts.items():
                if key in self._missing:
                    self._missing[key] -= sign * amount

    def _counts(self, holding: Holding) -> bool:
        return self._books is None or self._above in self._books.chains[holding.policy_id]


class Clearing:
    """How many tasks of a demand find a place while holders are taken away."""

    def __init__(self, view: View, form: Form) -> None:
        need = need_of(view.ground, form)
        assert need is not None, "what can never be placed does not wait"
        self._view, self._form, self._need = view, form, need
        self._places = places_for(view, form)
        self._away: dict[str, list[int]] = {}  # by node: what was freed there

    @property
    def keys(self) -> Iterable[str]:
        return dict(self._form.amounts)

    @property
    def everywhere(self) -> bool:
        return True

    @property
    def left(self) -> int:
        return max(self._form.tasks - self._places, 0)

    @property
    def met(self) -> bool:
        return self._places >= self._form.tasks

    def wants(self, holding: Holding) -> bool:
        return not self.met and any(self._suits(node_id) for node_id, _ in holding.footprint)

    def take_away(self, holding: Holding, sign: int) -> None:
        keys = self._view.ground.keys
        for node_id, tasks in holding.footprint:
            if not self._suits(node_id):
                continue
            before = self._slots(node_id)
            freed = self._away.setdefault(node_id, [0] * len(keys))
            for at, key in enumerate(keys):
                freed[at] += sign * tasks * holding.each.get(key, 0)
            self._places += self._slots(node_id) - before

    def _suits(self, node_id: str) -> bool:
        node = self._view.ground.spots[node_id].node
        return node.usable and suits(node, self._form)

    def _slots(self, node_id: str) -> int:
        room = self._view.instead.get(node_id)
        if room is None:
            room = self._view.ground.spots[node_id].promise[0]
        freed = self._away.get(node_id)
        if freed is not None:
            room = tuple(map(add, room, freed))
        return slots(room, self._need, self._form.per_node)


def _legal(state: State, books: Books, taker: Taker, keys: Iterable[str]) -> Iterator[Holding]:
    """Holders of a missing key that this waiter may stop, in the order in which they are to go.

    From its own policy non-preemptible work may take preemptible holders, and any work those that
    are less safe in their family, after what others borrowed; equals never take from each other.
    """
    precedence = books.pool.settings.precedence
    for level in range(BORROWED, IN_SHARE + 1):
        mine = []
        for place in _places(books, level, keys):
            holding = books.holdings[place[3]]
            if holding.policy_id == taker.policy_id:
                if may_take_own(state, books, taker, holding):
                    mine.append(holding)
            elif not standing(level, place[1], precedence) < taker.standing:
                if taker.request.preemptible and not books.fair:
                    break  # ranks only rise from here, and it may take nothing of its own
            elif not spared(state, books, taker, holding, level):
                yield holding
        yield from mine


def _places(books: Books, level: int, keys: Iterable[str]) -> Iterator[Place]:
    """Holders of a missing key, of one level of rights, in order and each once."""
    last: Place | None = None
    for place in merge(
        *(_level(books.takeable[key], level) for key in keys if key in books.takeable)
    ):
        if place != last:
            last = place
            yield place


def _level(places: SortedList[Place], level: int) -> Iterator[Place]:
    """The places of one level of rights, in order."""
    return places.irange((level, -1, 0, ""), (level + 1, -1, 0, ""))


def rule(books: Books, holding: Holding, taker: Taker) -> Code:
    """The rule that makes stopping this holder legal for this waiter."""
    if holding.policy_id == taker.policy_id:
        return Code.OWN_POLICY
    if taker.rights <= books.rights(holding.id):
        return Code.PRIORITY
    return Code.STARVATION if books.fair else Code.RECLAIM

"""Who must stop so that a waiter starts: the lowest legal holders, no more than needed, or nobody.

Holders are looked at from the lowest rights up; those of higher rights only if the lower ones are
not enough. What decides within equal rights is the pool's price: the lowest rank and then the
newest, because it loses the least work; or the fewest, and of equally few the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import itemgetter

from sortedcontainers import SortedList

from cede.engine.books import Books, Place
from cede.engine.candidates import Candidate
from cede.engine.cheapest import VictimSettings, cheapest
from cede.engine.goals import Clearing, Goal, Shortage
from cede.engine.patience import Taker, may_take_own, spared
from cede.engine.share import Holding
from cede.engine.site import site
from cede.engine.standing import BORROWED, IN_SHARE, standing
from cede.engine.state import State
from cede.model.amounts import Amounts
from cede.model.reason import Code
from cede.model.settings import Price
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
    legal = _legal(state, books, taker, missing.keys)
    if books.pool.settings.price is Price.NEWEST:
        return choose(goals, (holding for _, holding in legal))
    return _fewest(goals, legal)


def _fewest(goals: list[Goal], legal: Iterable[tuple[int, Holding]]) -> list[Holding] | None:
    """The fewest that meet all goals, of equally few the newest; none of higher rights than must
    be.
    """
    candidates: list[Candidate] = []
    for _, level in groupby(legal, key=itemgetter(0)):
        candidates += [Candidate(each, 0, each.rank, 0) for _, each in level]
        found = cheapest(candidates, goals, VictimSettings(max_victims=len(candidates)))
        if found.victims is not None:
            return [each.holding for each in found.victims]
    return None


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


def _legal(
    state: State, books: Books, taker: Taker, keys: Iterable[str]
) -> Iterator[tuple[int, Holding]]:
    """Holders of a missing key that this waiter may stop, in the order in which they are to go,
    with their rights.

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
                yield level, holding
        yield from ((level, each) for each in mine)


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

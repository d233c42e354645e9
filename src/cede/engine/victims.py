"""Who must stop so that a waiter starts: the lowest legal holders, no more than needed, or nobody.

Holders are looked at from the lowest rights up; within equal rights from the lowest rank, then the
newest, because it loses the least work. Whatever turns out not to be needed is given back, the most
deserving first, and legality is judged again on the set that will really stop (S7, S8).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from operator import add

from sortedcontainers import SortedList

from cede.engine.books import Books, Place
from cede.engine.patience import protected
from cede.engine.placement import View, need_of, places_for, slots, suits
from cede.engine.share import Holding
from cede.engine.site import site
from cede.engine.standing import BORROWED, IN_SHARE, standing
from cede.engine.state import State
from cede.model.amounts import Amounts
from cede.model.reason import Code
from cede.model.request import Request
from cede.model.shape import Form


def find_victims(
    state: State,
    books: Books,
    waiter: Request,
    policy_id: str,
    rights: int,
    short: Amounts,
    form: Form | None = None,
) -> list[Holding] | None:
    """The holders to stop so that `short` is covered and, in a pool of nodes, every task has a
    place; None when no legal set does that.
    """
    if form is not None:
        bound = books.standing(policy_id, rights)
        view = site(state, books, bound, promise=True, own=(waiter.id,))
        clearing = Clearing(view, form)
        return clearing.victims(_legal(state, books, waiter, policy_id, rights, short))
    chosen: list[Holding] = []
    missing = dict(short)
    for holding in _legal(state, books, waiter, policy_id, rights, short):
        if any(missing.get(key, 0) > 0 for key in holding.amounts):
            chosen.append(holding)
            for key, amount in holding.amounts.items():
                if key in missing:
                    missing[key] -= amount
            if all(left <= 0 for left in missing.values()):
                return _give_back(chosen, missing)
    return None


class Clearing:
    """How many tasks of a demand find a place while holders are taken away."""

    def __init__(self, view: View, form: Form) -> None:
        need = need_of(view.ground, form)
        assert need is not None, "what can never be placed does not wait"
        self._view, self._form, self._need = view, form, need
        self._places = places_for(view, form)
        self._away: dict[str, list[int]] = {}  # by node: what was freed there

    def victims(self, legal: Iterator[Holding]) -> list[Holding] | None:
        """The first of these that make enough places, without those that turn out to be of no
        use.
        """
        chosen: list[Holding] = []
        for holding in legal:
            if self._take_away(holding, 1):
                chosen.append(holding)
            if self._places >= self._form.tasks:
                return self._give_back(chosen)
        return None

    def _give_back(self, chosen: list[Holding]) -> list[Holding]:
        kept = list(chosen)
        for holding in reversed(chosen):
            self._take_away(holding, -1)
            if self._places >= self._form.tasks:
                kept.remove(holding)
            else:
                self._take_away(holding, 1)
        return kept

    def _take_away(self, holding: Holding, sign: int) -> bool:
        """Count a holder out, or in again; whether it is on any node that could be of use."""
        useful = False
        ground = self._view.ground
        for node_id, tasks in holding.footprint:
            node = ground.spots[node_id].node
            if not node.usable or not suits(node, self._form):
                continue
            useful = True
            before = self._slots(node_id)
            freed = self._away.setdefault(node_id, [0] * len(ground.keys))
            for at, key in enumerate(ground.keys):
                freed[at] += sign * tasks * holding.each.get(key, 0)
            self._places += self._slots(node_id) - before
        return useful

    def _slots(self, node_id: str) -> int:
        room = self._view.instead.get(node_id)
        if room is None:
            room = self._view.ground.spots[node_id].promise[0]
        freed = self._away.get(node_id)
        if freed is not None:
            room = tuple(map(add, room, freed))
        return slots(room, self._need, self._form.per_node)


def _give_back(chosen: list[Holding], missing: dict[str, int]) -> list[Holding]:
    """Drop whoever is not needed, trying the highest and oldest first."""
    kept = list(chosen)
    for holding in reversed(chosen):
        spare = {key: left + holding.amounts.get(key, 0) for key, left in missing.items()}
        if all(left <= 0 for left in spare.values()):
            kept.remove(holding)
            missing = spare
    return kept


def _legal(
    state: State, books: Books, waiter: Request, policy_id: str, rights: int, short: Amounts
) -> Iterator[Holding]:
    """Holders of a missing key that this waiter may stop, in the order in which they are to go.

    From its own policy non-preemptible work may take preemptible holders, after what others
    borrowed; equals never take from each other otherwise.
    """
    bound = books.standing(policy_id, rights)
    precedence = books.pool.settings.precedence
    for level in (BORROWED, IN_SHARE):
        mine = []
        for place in _places(books, level, short):
            holding = books.holdings[place[3]]
            if protected(state, holding, level, rights):
                continue
            if holding.policy_id == policy_id:
                mine.append(holding)
            elif standing(level, place[1], precedence) < bound:
                yield holding
            elif waiter.preemptible:
                break  # ranks only rise from here, and it may take nothing of its own
        if not waiter.preemptible:
            yield from mine


def _places(books: Books, level: int, short: Amounts) -> Iterator[Place]:
    """Holders of a missing key, of one level of rights, in order and each once."""
    last: Place | None = None
    for place in merge(
        *(_level(books.takeable[key], level) for key in short if key in books.takeable)
    ):
        if place != last:
            last = place
            yield place


def _level(places: SortedList[Place], level: int) -> Iterator[Place]:
    """The places of one level of rights, in order."""
    return places.irange((level, -1, 0, ""), (level + 1, -1, 0, ""))


def rule(books: Books, holding: Holding, policy_id: str, rights: int) -> Code:
    """The rule that makes stopping this holder legal for a waiter of these rights."""
    if holding.policy_id == policy_id:
        return Code.OWN_POLICY
    return Code.RECLAIM if rights > books.rights(holding.id) else Code.PRIORITY

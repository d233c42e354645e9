"""Who must stop so that a waiter starts: the lowest legal holders, no more than needed, or nobody.

Holders are looked at from the lowest rights up; within equal rights from the lowest rank, then the
newest, because it loses the least work. Whatever turns out not to be needed is given back, the most
deserving first, and legality is judged again on the set that will really stop (S7, S8).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

from sortedcontainers import SortedList

from cede.engine.books import Books, Place
from cede.engine.patience import protected
from cede.engine.share import Holding
from cede.engine.standing import BORROWED, IN_SHARE, standing
from cede.engine.state import State
from cede.model.amounts import Amounts
from cede.model.reason import Code
from cede.model.request import Request


def find_victims(
    state: State, books: Books, waiter: Request, policy_id: str, rights: int, short: Amounts
) -> list[Holding] | None:
    """The holders to stop so that `short` is covered; None when no legal set covers it."""
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

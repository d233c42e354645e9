"""Whom a waiter could have stopped, what each would cost, and why each was chosen or not.

Deciding needs none of it: it is made for whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cede.engine.books import Books
from cede.engine.patience import Taker, may_take_own, spared
from cede.engine.pricing import candidate, price, shield
from cede.engine.share import Holding
from cede.engine.standing import standing
from cede.engine.state import State
from cede.engine.victims import Missing, goals_of, weigh
from cede.engine.why_not import reasons
from cede.model.reason import Code

# More than this nobody reads.
SHOWN_MAX = 200
# Why not: it is not below the waiter.
STANDING = "standing"


def weighed(state: State, books: Books, taker: Taker, missing: Missing) -> list[dict[str, Any]]:
    """Every holder of what a waiter misses, the cheapest first."""
    holders = [
        each
        for each in books.holdings.values()
        if not each.earmark and any(key in each.amounts for key in missing.keys)
    ]
    barred = {each.id: why for each in holders if (why := _barred(state, books, taker, each))}
    legal = [each for each in holders if each.id not in barred]
    why_not = {**barred, **_searched(state, books, taker, missing, legal)}
    prices = {each.id: price(state, books, each) for each in holders}
    holders.sort(key=lambda each: (prices[each.id].total, -each.index, each.id))
    return [
        {
            "id": each.id,
            "price": prices[each.id].total,
            "parts": {
                "checkpoint": prices[each.id].checkpoint,
                "recompute": prices[each.id].recompute,
                "remaining": prices[each.id].remaining,
            },
            "chosen": each.id not in why_not,
            "why_not": why_not.get(each.id),
        }
        for each in holders[:SHOWN_MAX]
    ]


def not_stopped(shown: Iterable[dict[str, Any]], why: Code) -> list[dict[str, Any]]:
    """The same for one who waits all the same: whom it would stop is not stopped, for that."""
    return [
        {**each, "chosen": False, "why_not": str(why)} if each["chosen"] else each for each in shown
    ]


def _searched(
    state: State, books: Books, taker: Taker, missing: Missing, legal: list[Holding]
) -> dict[str, str]:
    """Why those that may be stopped were not; nothing for those who were."""
    goals = goals_of(state, books, taker, missing)
    choice = weigh(state, books, taker, goals, _by_rights(books, legal))
    candidates = [candidate(state, books, each) for each in legal]
    found = zip(legal, reasons(candidates, goals, choice), strict=True)
    return {each.id: str(why) for each, why in found if why is not None}


def _by_rights(books: Books, legal: Iterable[Holding]) -> list[tuple[int, Holding]]:
    found = [(books.rights(each.id), each) for each in legal]
    return sorted(found, key=lambda each: (each[0], each[1].rank, -each[1].index, each[1].id))


def _barred(state: State, books: Books, taker: Taker, holding: Holding) -> str | None:
    """The first rule under which this waiter may not stop a holder."""
    if holding.leaving:
        return "leaving"
    if not holding.preemptible:
        return "non_preemptible"
    if not holding.takeable or holding.safe:
        return "protected"
    if (protection := shield(state, books, holding)) is not None:
        return str(protection)
    own = holding.policy_id == taker.policy_id
    if own and holding.rank == taker.rank:
        return None if may_take_own(state, books, taker, holding) else "own_policy"
    level = books.rights(holding.id)
    below = standing(level, holding.rank, books.pool.settings.precedence) < taker.standing
    if not below or (own and holding.rank > taker.rank):
        return STANDING
    found = spared(state, books, taker, holding, level)
    return None if found is None else str(found)

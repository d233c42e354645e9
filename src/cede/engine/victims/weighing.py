"""The candidates of a waiter, the price of each, and why each was chosen or not.

No decision uses it: it serves `why`, and the event of a stop.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from typing import Any

from cede.engine.ledger.ledger import PoolLedger
from cede.engine.rights.cover import Holding
from cede.engine.rights.standing import standing
from cede.engine.state.state import State
from cede.engine.victims.amounts import Kept, may_lose
from cede.engine.victims.cheapest import Choice
from cede.engine.victims.choose import Missing, find_victims, goals_of
from cede.engine.victims.pricing import candidate, price, shield
from cede.engine.victims.protection import Preemptor, may_take_own, spared
from cede.engine.victims.why_not import reasons
from cede.model.reason import Code

# Candidates in an answer to `why`; more are not read.
SHOWN_MAX = 200
# Candidates in each stop's event, which is kept for long, and in each preemption of a plan.
TOLD_MAX = 20
# Not stopped because it is not below the waiter.
STANDING = "standing"
# Not stopped by amounts because its policy, or one above, would keep less than its reserve.
RESERVE = "reserve"


def weighed(
    state: State, ledger: PoolLedger, preemptor: Preemptor, missing: Missing
) -> list[dict[str, Any]]:
    """Every holder of a key that a waiter misses, the cheapest first."""
    return _shown(state, ledger, preemptor, missing, _holders(ledger, missing))[:SHOWN_MAX]


def weighed_for(
    state: State,
    ledger: PoolLedger,
    preemptor: Preemptor,
    missing: Missing,
    chosen: Choice,
) -> list[dict[str, Any]]:
    """The same for a preemption: its victims, and the cheapest of the other holders."""
    victims = [each.holding for each in chosen.victims or ()]
    ids = {each.id for each in victims}
    others = (
        (price(state, ledger, each).total, -each.index, each.id)
        for each in _holders(ledger, missing)
        if each.id not in ids
    )
    cheap = nsmallest(max(0, TOLD_MAX - len(victims)), others)
    some = [*victims, *(ledger.holdings[each] for *_, each in cheap)]
    return _shown(state, ledger, preemptor, missing, some, chosen)


def _holders(ledger: PoolLedger, missing: Missing) -> list[Holding]:
    keys = set(missing.keys)
    return [
        each
        for each in ledger.holdings.values()
        if not each.earmark and not keys.isdisjoint(each.amounts)
    ]


def _shown(
    state: State,
    ledger: PoolLedger,
    preemptor: Preemptor,
    missing: Missing,
    holders: list[Holding],
    choice: Choice | None = None,
) -> list[dict[str, Any]]:
    barred = {each.id: why for each in holders if (why := _barred(state, ledger, preemptor, each))}
    legal = [each for each in holders if each.id not in barred]
    choice = choice or find_victims(state, ledger, preemptor, missing)
    why_not = {**barred, **_searched(state, ledger, preemptor, missing, legal, choice)}
    prices = {each.id: price(state, ledger, each) for each in holders}
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
        for each in holders
    ]


def not_stopped(shown: Iterable[dict[str, Any]], why: Code) -> list[dict[str, Any]]:
    """The same for a waiter that preempts nothing: its chosen candidates are not stopped, for
    `why`.
    """
    return [
        {**each, "chosen": False, "why_not": str(why)} if each["chosen"] else each for each in shown
    ]


def in_short(state: State, shown: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same for an event: by requests, without the parts of a price."""
    return [
        {
            "request": state.allocations[each["id"]].request_id,
            "price": round(each["price"], 3),
            "why_not": each["why_not"],
        }
        for each in shown
        if each["id"] in state.allocations
    ]


def _searched(
    state: State,
    ledger: PoolLedger,
    preemptor: Preemptor,
    missing: Missing,
    legal: list[Holding],
    choice: Choice,
) -> dict[str, str]:
    """The reasons why legal holders were not chosen; without those that were."""
    goals = goals_of(state, ledger, preemptor, missing)
    candidates = [candidate(state, ledger, each) for each in legal]
    found = zip(legal, reasons(candidates, goals, choice), strict=True)
    return {each.id: str(why) for each, why in found if why is not None}


def _barred(state: State, ledger: PoolLedger, preemptor: Preemptor, holding: Holding) -> str | None:
    """The first rule under which this waiter may not stop a holder."""
    if holding.leaving:
        return "leaving"
    if not holding.preemptible:
        return "non_preemptible"
    if not holding.takeable or holding.safe:
        return "protected"
    if (protection := shield(state, ledger, holding)) is not None:
        return str(protection)
    if preemptor.by_amounts:
        kept = Kept(ledger, preemptor.policy_id)
        return None if may_lose(state, ledger, preemptor, holding, kept) else RESERVE
    own = holding.policy_id == preemptor.policy_id
    if own and holding.rank == preemptor.rank:
        return None if may_take_own(state, ledger, preemptor, holding) else "own_policy"
    level = ledger.rights(holding.id)
    below = standing(level, holding.rank, ledger.pool.settings.precedence) < preemptor.standing
    if not below or (own and holding.rank > preemptor.rank):
        return STANDING
    found = spared(state, ledger, preemptor, holding, level)
    return None if found is None else str(found)

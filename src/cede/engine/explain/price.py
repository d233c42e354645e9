"""Why a waiter stops no holder where price decides, and the candidates that were weighed."""

from __future__ import annotations

from math import ceil
from typing import Any

from cede.engine.ledger.ledger import PoolLedger
from cede.engine.queue.forecast import earliest_start
from cede.engine.state.state import State
from cede.engine.steps.preempt import Offer, Taking, starts_by_itself
from cede.engine.victims.choose import find_victims
from cede.engine.victims.weighing import SHOWN_MAX, STANDING, not_stopped, weighed
from cede.engine.victims.why_not import WhyNot
from cede.model.durations import seconds
from cede.model.plan import Plan
from cede.model.policy import Policy
from cede.model.reason import Code, Reason
from cede.model.request import Request
from cede.model.settings import Price

Names = dict[str, Any]


def by_price(ledger: PoolLedger) -> bool:
    return ledger.pool.settings.price is Price.CHECKPOINT


def cannot_pay(state: State, request: Request, policy: Policy, names: Names) -> Reason | None:
    """The nearest reason that lies in the price or the time of stopping others; None if there is
    none.
    """
    found = None
    for offer in _short(state, request, policy):
        choice = find_victims(state, offer.ledger, offer.preemptor, offer.missing)
        if choice.victims is not None:
            victims = [each.holding for each in choice.victims]
            start = earliest_start(state, offer.ledger, request)
            if start is not None and starts_by_itself(state, offer.ledger, request, victims):
                left = seconds(max(start.at - state.now, 0))
                return Reason(Code.WAITS_FIRST, {**names, "seconds": left})
        elif choice.best is not None:
            cost, value = ceil(choice.cost), ceil(choice.bound)
            found = Reason(Code.TOO_DEAR, {**names, "cost": cost, "value": value})
        elif not choice.exhaustive:
            found = found or Reason(Code.NOT_EXHAUSTIVE, names)
        elif (most := offer.ledger.pool.settings.max_victims) and _too_many(state, offer):
            found = found or Reason(Code.NO_SET, {**names, "most": most})
    return found


def would_not_pay(state: State, request: Request, policy: Policy, names: Names) -> Reason | None:
    """The same if holders could be stopped, and are not because of price or time."""
    found = cannot_pay(state, request, policy, names)
    return None if found is None or found.code is Code.NO_SET else found


def candidates(
    state: State, request: Request, policy: Policy, waits: Reason
) -> list[dict[str, Any]]:
    """The holders that a waiter could have stopped in a pool, with prices, and why it did not.

    A holder that is of no help at home may be elsewhere; one that is above the waiter now may not
    be once others have left, in an exchange.
    """
    found: dict[str, dict[str, Any]] = {}
    for offer in _short(state, request, policy):
        shown = weighed(state, offer.ledger, offer.preemptor, offer.missing)
        for each in not_stopped(shown, waits.code):
            found[each["id"]] = _nearer(found.get(each["id"], each), each)
    return sorted(found.values(), key=lambda each: each["price"])[:SHOWN_MAX]


def _nearer(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Of two entries of one holder the one that is about its stopping."""
    if first["why_not"] == WhyNot.DOES_NOT_HELP:
        return second
    rises = first["why_not"] == STANDING and second["why_not"] != WhyNot.DOES_NOT_HELP
    return second if rises else first


def _too_many(state: State, offer: Offer) -> bool:
    """Whether all holders that a waiter may stop would together make room, and only their number is
    too high.
    """
    shown = weighed(state, offer.ledger, offer.preemptor, offer.missing)
    return any(each["why_not"] == WhyNot.TOO_MANY for each in shown)


def _short(state: State, request: Request, policy: Policy) -> list[Offer]:
    offers = Taking(state, Plan(state.now)).offers(request, policy)
    return [each for each in offers if each.footprint is None and each.lacks]

"""Why a waiter of a fair-share pool takes nothing: its stage, the clocks that run, and the usage
that decided.

A waiter is served in one of three stages. In the regular stage it starts on free capacity. A
starving waiter takes, in the preemptive stage, what others hold beyond their shares, and an
aggressively starving one also what they hold between the two thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from cede.engine.fair.settings import FairSettings
from cede.engine.fair.status import Starvation, Starving
from cede.engine.ledger.account import goes_before, rights_if_granted, share_room
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.rights.cover import Holding
from cede.engine.rights.standing import BORROWED, WITHIN_SHARE
from cede.engine.shares.prefix import Prefix, in_policy, in_request
from cede.engine.shares.publish import settings_for
from cede.engine.state.state import State
from cede.engine.victims.protection import (
    Preemptor,
    Stage,
    forbids_aggressive,
    is_open,
    may_take_own,
    spared,
    stage_for,
)
from cede.model.amounts import Amounts
from cede.model.durations import seconds
from cede.model.policy import Policy
from cede.model.reason import Code, Reason
from cede.model.request import Request

Names = dict[str, Any]


# Patience -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Clock:
    """An element below its fair share: the waiter's request, its policy or one above."""

    name: str
    kind: str
    hunger: Starvation
    settings: FairSettings

    @property
    def since(self) -> int:
        assert self.hunger.since is not None, self
        return self.hunger.since

    @property
    def due(self) -> int:
        return self.since + self.settings.fair_share_starvation_timeout

    def shown(self, now: int) -> dict[str, Any]:
        aggressive = self.settings.enable_aggressive_starvation
        later = self.settings.fair_share_aggressive_starvation_timeout
        return {
            "name": self.name,
            "kind": self.kind,
            "for": seconds(now - self.since),
            "starvation": str(self.hunger.status),
            "starves_after": seconds(self.settings.fair_share_starvation_timeout),
            "aggressively_after": seconds(later) if aggressive else None,
        }


def clocks(state: State, ledger: PoolLedger, waiter: Request, policy_id: str) -> list[Clock]:
    """The elements below their share: the request, its policy and those above; the one that starves
    first comes first.
    """
    known = state.starving.get(ledger.pool.id, {})
    task_group = waiter.part_of or waiter.id
    found = []
    if (mine := known.get(task_group)) is not None and mine.since is not None:
        found.append(Clock(waiter.id, "request", mine, settings_for(ledger, policy_id, waiter)))
    for each in ledger.chains[policy_id]:
        if (theirs := known.get(each)) is not None and theirs.since is not None:
            name = ledger.policies[each].name
            found.append(Clock(name, "policy", theirs, settings_for(ledger, each)))
    return sorted(found, key=lambda each: (each.due, each.kind))


def not_yet(
    state: State, ledger: PoolLedger, waiter: Request, policy: Policy, names: Names
) -> Reason | None:
    """Why a waiter may not take at all; None if it may."""
    if stage_for(state, ledger, waiter, policy.id) is not Stage.REGULAR:
        return None
    patient = [
        each
        for each in clocks(state, ledger, waiter, policy.id)
        if each.hunger.status is Starving.NON_STARVING
    ]
    whose, since = policy.name, state.now
    whole = settings_for(ledger, policy.id, waiter).fair_share_starvation_timeout
    if patient:
        whose, since = patient[0].name, patient[0].since
        whole = patient[0].settings.fair_share_starvation_timeout
    elif waiter.submitted_at <= state.published_at.get(ledger.pool.id, -1):
        return _at_share(ledger, policy, names)
    # A waiter that came after the last computation of shares is included in the next.
    waited = {"below": whose, "since": seconds(state.now - since), "seconds": seconds(whole)}
    return Reason(Code.PATIENCE, {**names, **waited, "stage": str(Stage.REGULAR)})


def _at_share(ledger: PoolLedger, policy: Policy, names: Names) -> Reason:
    key = names["key"]
    fair = ledger.published.shares.get(policy.id, {}).get(key, 0)
    used = ledger.used[policy.id].get(key, 0)
    detail = {"used": used, "share": _hundredths(fair), "stage": str(Stage.REGULAR)}
    return Reason(Code.AT_SHARE, {**names, **detail})


# Rights ---------------------------------------------------------------------------------------


def preemptor_of(ledger: PoolLedger, waiter: Request, policy_id: str) -> Preemptor:
    """A waiter as it will be once granted."""
    key = ledger.queue_of(policy_id, waiter)
    demand = ledger.pool.metered(waiter.amounts)
    band = ledger.band(key, demand)
    rights = rights_if_granted(ledger, policy_id, demand, waiter.preemptible, band)
    return Preemptor(waiter, key, rights, band, ledger.standing(key.rank, rights))


def cannot_take(
    state: State, ledger: PoolLedger, waiter: Request, policy: Policy, names: Names
) -> Reason | None:
    """Why a starving waiter takes nothing; None if no holder could ever be taken from.

    The reason is that of the first holder, in the order of victims, that it cannot reach.
    """
    preemptor = preemptor_of(ledger, waiter, policy.id)
    stage = stage_for(state, ledger, waiter, policy.id)
    names = {**names, "stage": str(stage)}
    own = None
    for place in ledger.takeable.get(names["key"], ()):
        holding = ledger.holdings[place[3]]
        if holding.policy_id == policy.id:
            if own is None and not may_take_own(state, ledger, preemptor, holding):
                own = holding
        elif not ledger.standing_of(holding.id) < preemptor.standing:
            if preemptor.rights == BORROWED:
                return _beyond_share(ledger, preemptor, names)
            return _covered(in_policy(ledger, holding), names)
        elif spared(state, ledger, preemptor, holding, place[0]):
            if not is_open(state, ledger, holding):
                return _later(ledger, names)
            if place[0] == WITHIN_SHARE and stage is Stage.PREEMPTIVE:
                return _in_the_middle(state, ledger, waiter, policy.id, holding, names)
        elif (unfair := _not_fairer(ledger, preemptor, holding, names)) is not None:
            return unfair
    if own is not None:
        return _covered(in_request(ledger, own), names)
    return _protected(ledger, policy, names)


def _not_fairer(
    ledger: PoolLedger, preemptor: Preemptor, holding: Holding, names: Names
) -> Reason | None:
    """Why stopping a holder would not make the use of fair shares more even; None if it would."""
    balance = ledger.balance
    if balance is None or balance.may_lose(holding.policy_id, holding.amounts, preemptor.policy_id):
        return None
    holder = ledger.policies[holding.policy_id].name
    left = balance.level(balance.paths[holding.policy_id][-1], less=holding.amounts)
    level = balance.use(preemptor.policy_id)
    if level == inf:
        return Reason(Code.NO_FAIR_SHARE, names)
    detail = {"holder": holder, "left": _hundredths(left), "level": _hundredths(level)}
    return Reason(Code.NOT_FAIRER, {**names, **detail})


def _protected(ledger: PoolLedger, policy: Policy, names: Names) -> Reason | None:
    """The reason when all that others hold of a key is within their usage thresholds; else None."""
    key = names["key"]
    others = [
        each
        for each in ledger.holdings.values()
        if each.policy_id != policy.id and key in each.amounts and not each.leaving
    ]
    safe = [each for each in others if each.safe]
    if not safe:
        return None
    newest = max(safe, key=lambda each: each.index)
    threshold = settings_for(ledger, newest.policy_id).non_preemptible_resource_usage_threshold
    amount = sum(each.amounts[key] for each in safe)
    shown = ", ".join(f"{most:g} {name}" for name, most in sorted(threshold.items()))
    holder = ledger.policies[newest.policy_id].name
    return Reason(
        Code.USAGE_THRESHOLD, {**names, "holder": holder, "held": amount, "threshold": shown}
    )


def _beyond_share(ledger: PoolLedger, preemptor: Preemptor, names: Names) -> Reason:
    key, policy_id = names["key"], preemptor.policy_id
    level = ledger.levels[policy_id][1]
    before = goes_before(ledger, policy_id, level, preemptor.band)
    left = share_room(ledger, level, preemptor.request.preemptible, before)
    room = 0 if left is None else left.get(key, 0)
    used = ledger.used[policy_id].get(key, 0)
    remedy = f"ask for at most {room} {key}" if room > 0 else "one of its own holders must end"
    share = _hundredths(ledger.share_at(level).get(key, 0))
    detail = {"used": used, "share": share, "remedy": remedy}
    return Reason(Code.BEYOND_SHARE, {**names, **detail, "would": used + names["requested"]})


def _covered(prefix: Prefix, names: Names) -> Reason:
    return Reason(Code.WITHIN_SHARE, {**names, **_of_key(prefix, names["key"])})


def _later(ledger: PoolLedger, names: Names) -> Reason:
    backoff = ledger.pool.settings.preemptive_scheduling_backoff
    return Reason(Code.STAGE_BACKOFF, {**names, "seconds": seconds(backoff)})


def _in_the_middle(
    state: State,
    ledger: PoolLedger,
    waiter: Request,
    policy_id: str,
    holding: Holding,
    names: Names,
) -> Reason:
    """The reason when all that could be taken is between the thresholds, which this waiter does not
    reach.
    """
    theirs = settings_for(ledger, holding.policy_id)
    mine = settings_for(ledger, policy_id, waiter)
    remedy = "let it starve aggressively: enable_aggressive_starvation"
    if (forbidden := forbids_aggressive(state, ledger, holding)) is not None:
        remedy = f"let its holder be taken from: {forbidden}"
    elif mine.enable_aggressive_starvation:
        after = seconds(mine.fair_share_aggressive_starvation_timeout)
        remedy = f"nothing: after {after} seconds below its share it starves aggressively"
    detail = {
        "aggressive": theirs.aggressive_preemption_satisfaction_threshold,
        "normal": theirs.preemption_satisfaction_threshold,
        "remedy": remedy,
    }
    prefix = _of_key(in_policy(ledger, holding), names["key"])
    return Reason(Code.BETWEEN_THRESHOLDS, {**names, **detail, **prefix})


def _of_key(prefix: Prefix, key: str) -> dict[str, Any]:
    return {
        "group": str(prefix.group),
        "before": prefix.before.get(key, 0),
        "through": prefix.through.get(key, 0),
        "share": prefix.bound.get(key, 0),
    }


def _hundredths(share: float) -> int | float:
    shown = round(share, 2)
    return int(shown) if shown == int(shown) else shown


# The full account -----------------------------------------------------------------------------


def story(state: State, ledger: PoolLedger, waiter: Request, policy: Policy) -> dict[str, Any]:
    """The stage that a waiter is served in, the clocks that it waits for, and the thresholds."""
    settings = settings_for(ledger, policy.id, waiter)
    due = ledger.published.shares.get(policy.id, {})
    return {
        "stage": str(stage_for(state, ledger, waiter, policy.id)),
        "below": [each.shown(state.now) for each in clocks(state, ledger, waiter, policy.id)],
        "used": {key: ledger.used[policy.id].get(key, 0) for key in ledger.pool.capacity},
        "due": {key: _hundredths(amount) for key, amount in due.items()},
        "satisfaction": ledger.published.satisfaction.get(policy.id, 0),
        "weight": waiter.terms.weight,
        "own_due": _own_due(ledger, waiter),
        "tolerance": settings.fair_share_starvation_tolerance,
        "threshold": settings.preemption_satisfaction_threshold,
        "aggressive_threshold": settings.aggressive_preemption_satisfaction_threshold,
    }


def _own_due(ledger: PoolLedger, waiter: Request) -> dict[str, int | float]:
    """A request's part of its policy's share; empty before shares were computed with it."""
    claim = ledger.published.claims.get(waiter.part_of or waiter.id)
    if claim is None:
        return {}
    parts = zip(claim.due.totals.items(), claim.due.fair, strict=True)
    return {key: _hundredths(total * part) for (key, total), part in parts}


def of_holder(
    ledger: PoolLedger, holding: Holding, policy_id: str, demand: Amounts
) -> dict[str, Any]:
    """The place of a holder in its share, relative to a waiter of a policy, in the keys of its
    demand.
    """
    same = holding.policy_id == policy_id
    prefix = in_request(ledger, holding) if same else in_policy(ledger, holding)
    keys = [key for key in demand if key in holding.amounts]
    return {
        "group": str(prefix.group),
        "judged_in": "request" if same else "policy",
        "covered_above": prefix.above,
        "before": {key: prefix.before.get(key, 0) for key in keys},
        "through": {key: prefix.through.get(key, 0) for key in keys},
        "share": {key: prefix.bound.get(key, 0) for key in keys},
    }

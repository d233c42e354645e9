"""The price of stopping a holder, and the value of a waiter, computed from the state."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from cede.engine.ledger.ledger import PoolLedger
from cede.engine.queue.scoring import is_bursting
from cede.engine.rights.cover import Holding
from cede.engine.rights.price import (
    Price,
    PriceSettings,
    Shield,
    ShieldSettings,
    Stopping,
    price_of,
    saving_minutes,
    shield_of,
    value_of,
)
from cede.engine.state.state import State
from cede.engine.victims.candidates import Candidate
from cede.engine.victims.cheapest import VictimSettings
from cede.model.bounds import MINUTE
from cede.model.request import Request
from cede.model.settings import Rank
from cede.model.terms import CLASS_MAX

GPU = "gpu"


def stopping(state: State, ledger: PoolLedger, holding: Holding) -> Stopping:
    """The properties of a holder that its price depends on."""
    allocation = state.allocations[holding.id]
    request = state.requests[allocation.request_id]
    return Stopping(
        now=state.now,
        checkpoint=request.stop_policy.checkpoint,
        started_at=allocation.started_at,
        last_checkpoint_at=None if request.saved is None else request.saved.at,
        estimate=None if allocation.asked is None else allocation.asked.took,
        timeout=request.stop_policy.timeout,
        walltime=allocation.walltime,
        nodes=len(holding.footprint) or request.tasks,
        gpus_per_node=_gpus_per_node(request, len(holding.footprint)),
        kind=ledger.policies[holding.policy_id].kind,
        bursting=ledger.pool.settings.burst_discount and is_bursting(state, ledger.pool, request),
    )


def _gpus_per_node(request: Request, nodes: int) -> int:
    return request.amounts.get(GPU, 0) // (nodes or request.tasks)


@dataclass(frozen=True, slots=True)
class Appraisal:
    """The price of stopping a holder, and its shield, at one instant."""

    at: int
    price: Price
    shield: Shield | None


def appraise(state: State, ledger: PoolLedger, holding: Holding) -> Appraisal:
    """The appraisal of a holder, computed once for all waiters of a pass."""
    known: Appraisal | None = ledger.appraised.get(holding.id)
    if known is None or known.at != state.now:
        known = ledger.appraised[holding.id] = _appraise(state, ledger, holding)
    return known


def _appraise(state: State, ledger: PoolLedger, holding: Holding) -> Appraisal:
    settings = ledger.pool.settings
    request = state.requests[state.allocations[holding.id].request_id]
    by_class = settings.rank is Rank.CLASS
    seen = stopping(state, ledger, holding)
    shields = ShieldSettings(
        settings.near_completion_threshold, settings.protect_unsaved and by_class
    )
    costs = PriceSettings(settings.near_completion_fraction, burst_discount=settings.burst_discount)
    rank = request.terms.preemption_class if by_class else 0
    return Appraisal(
        at=state.now,
        price=price_of(seen, costs),
        shield=shield_of(seen, rank, request.terms.sensitive, shields),
    )


def price(state: State, ledger: PoolLedger, holding: Holding) -> Price:
    return appraise(state, ledger, holding).price


def candidate(state: State, ledger: PoolLedger, holding: Holding) -> Candidate:
    cost = price(state, ledger, holding)
    return Candidate(holding, cost.total, holding.rank, cost.checkpoint)


def shield(state: State, ledger: PoolLedger, holding: Holding) -> Shield | None:
    """The shield that protects a holder from every waiter now; None if there is none."""
    settings = ledger.pool.settings
    if settings.rank is Rank.PRIORITY and not settings.near_completion_threshold:
        request = state.requests[state.allocations[holding.id].request_id]
        return Shield.SENSITIVE if request.terms.sensitive else None
    return appraise(state, ledger, holding).shield


def search(ledger: PoolLedger, count: int) -> VictimSettings:
    """The pool's settings for a search among `count` candidates."""
    settings = ledger.pool.settings
    return VictimSettings(
        settings.max_victims or count, settings.per_victim_cost, settings.victim_groups_max
    )


def value(ledger: PoolLedger, request: Request) -> float:
    """The value of a waiter: the bound on the cost of its victims."""
    if not ledger.pool.settings.value_bound:
        return inf
    by_class = ledger.pool.settings.rank is Rank.CLASS
    return value_of(
        request.walltime,
        request.terms.preemption_class if by_class else 0,
        request.tasks,
        _gpus_per_node(request, request.tasks),
        is_immediate(ledger, request),
    )


def is_immediate(ledger: PoolLedger, request: Request) -> bool:
    """Whether a waiter neither waits first nor is bounded by its value: sensitive work, and the
    highest class.
    """
    by_class = ledger.pool.settings.rank is Rank.CLASS
    highest = by_class and request.terms.preemption_class >= CLASS_MAX
    return request.terms.sensitive or highest


def stop_progress_time(state: State, ledger: PoolLedger, holding: Holding) -> int:
    """The estimated time until a holder that is asked to stop has stopped."""
    request = state.requests[state.allocations[holding.id].request_id]
    asked, stop_policy = state.allocations[holding.id].asked, request.stop_policy
    estimate = None if asked is None else asked.took
    minutes = saving_minutes(stop_policy.checkpoint, estimate, stop_policy.timeout) or 0
    return int(minutes * MINUTE) + ledger.pool.settings.grace

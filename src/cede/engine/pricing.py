"""What stopping a holder of this pool would cost, and what a waiter is worth: the price's inputs,
read from the state.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from cede.engine.books import Books
from cede.engine.candidates import Candidate
from cede.engine.cheapest import VictimSettings
from cede.engine.price import (
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
from cede.engine.queue_score import is_bursting
from cede.engine.share import Holding
from cede.engine.state import State
from cede.model.bounds import MINUTE
from cede.model.request import Request
from cede.model.settings import Rank
from cede.model.terms import CLASS_MAX

GPU = "gpu"


def stopping(state: State, books: Books, holding: Holding) -> Stopping:
    """A holder as its price sees it."""
    allocation = state.allocations[holding.id]
    request = state.requests[allocation.request_id]
    return Stopping(
        now=state.now,
        checkpoint=request.farewell.checkpoint,
        started_at=allocation.started_at,
        last_checkpoint_at=None if request.saved is None else request.saved.at,
        estimate=None if allocation.asked is None else allocation.asked.took,
        timeout=request.farewell.timeout,
        walltime=allocation.walltime,
        nodes=len(holding.footprint) or request.tasks,
        gpus_per_node=_gpus_per_node(request, len(holding.footprint)),
        kind=books.policies[holding.policy_id].kind,
        bursting=books.pool.settings.burst_discount and is_bursting(state, books.pool, request),
    )


def _gpus_per_node(request: Request, nodes: int) -> int:
    return request.amounts.get(GPU, 0) // (nodes or request.tasks)


@dataclass(frozen=True, slots=True)
class Appraisal:
    """What a holder's stopping costs and what protects it, at one instant."""

    at: int
    price: Price
    shield: Shield | None


def appraise(state: State, books: Books, holding: Holding) -> Appraisal:
    """Worked out once for all waiters of a pass."""
    known: Appraisal | None = books.appraised.get(holding.id)
    if known is None or known.at != state.now:
        known = books.appraised[holding.id] = _appraise(state, books, holding)
    return known


def _appraise(state: State, books: Books, holding: Holding) -> Appraisal:
    settings = books.pool.settings
    request = state.requests[state.allocations[holding.id].request_id]
    by_class = settings.rank is Rank.CLASS
    seen = stopping(state, books, holding)
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


def price(state: State, books: Books, holding: Holding) -> Price:
    return appraise(state, books, holding).price


def candidate(state: State, books: Books, holding: Holding) -> Candidate:
    cost = price(state, books, holding)
    return Candidate(holding, cost.total, holding.rank, cost.checkpoint)


def shield(state: State, books: Books, holding: Holding) -> Shield | None:
    """What protects a holder from every waiter, now."""
    settings = books.pool.settings
    if settings.rank is Rank.PRIORITY and not settings.near_completion_threshold:
        request = state.requests[state.allocations[holding.id].request_id]
        return Shield.SENSITIVE if request.terms.sensitive else None
    return appraise(state, books, holding).shield


def search(books: Books, count: int) -> VictimSettings:
    """How the pool searches among so many candidates."""
    settings = books.pool.settings
    return VictimSettings(
        settings.max_victims or count, settings.per_victim_cost, settings.victim_groups_max
    )


def value(books: Books, request: Request) -> float:
    """The most that stopping others for a waiter may cost."""
    if not books.pool.settings.value_bound:
        return inf
    by_class = books.pool.settings.rank is Rank.CLASS
    return value_of(
        request.walltime,
        request.terms.preemption_class if by_class else 0,
        request.tasks,
        _gpus_per_node(request, request.tasks),
        is_immediate(books, request),
    )


def is_immediate(books: Books, request: Request) -> bool:
    """Whether a waiter neither waits first nor is measured by its worth: sensitive work, and the
    highest class.
    """
    by_class = books.pool.settings.rank is Rank.CLASS
    highest = by_class and request.terms.preemption_class >= CLASS_MAX
    return request.terms.sensitive or highest


def parting_time(state: State, books: Books, holding: Holding) -> int:
    """How long until a holder that is asked to stop has stopped, as far as one can say."""
    request = state.requests[state.allocations[holding.id].request_id]
    asked, farewell = state.allocations[holding.id].asked, request.farewell
    estimate = None if asked is None else asked.took
    minutes = saving_minutes(farewell.checkpoint, estimate, farewell.timeout) or 0
    return int(minutes * MINUTE) + books.pool.settings.grace

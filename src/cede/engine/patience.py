"""When a waiter may take, and when a holder may be stopped.

A waiter may have to starve first. A holder's first seconds are its own, as far as the pool says.
"""

from __future__ import annotations

from cede.engine.books import Books
from cede.engine.fair.status import Starving
from cede.engine.fairness import hunger
from cede.engine.share import Holding
from cede.engine.standing import IN_SHARE
from cede.engine.state import State
from cede.model.request import Request
from cede.model.settings import Patience


def may_take(state: State, books: Books, waiter: Request, policy_id: str) -> bool:
    """Whether a waiter has waited long enough to take at all."""
    if books.pool.settings.patience is Patience.NONE:
        return True
    return hunger(state, books, waiter, policy_id) is not Starving.NON_STARVING


def spared(state: State, books: Books, level: int, waiter: Request, policy_id: str) -> bool:
    """Whether holdings of these rights are out of a waiter's reach for now: what is within its own
    policy's fair share only the aggressively starving may take, where the pool allows it.
    """
    if not books.fair or level != IN_SHARE - 1:
        return False
    settings = books.pool.settings
    if settings.patience is Patience.NONE:
        return False
    hungry = hunger(state, books, waiter, policy_id) is Starving.AGGRESSIVELY_STARVING
    return not (hungry and settings.allow_aggressive_preemption)


def protected(state: State, holding: Holding, holder_rights: int, waiter_rights: int) -> bool:
    """Whether a holder is inside its first seconds: `reclaim_min_run` against a waiter of higher
    rights, `min_run` against any other.
    """
    allocation = state.allocations[holding.id]
    settings = state.pools[allocation.pool_id].settings
    first = settings.reclaim_min_run if waiter_rights > holder_rights else settings.min_run
    return bool(first) and state.now < allocation.allocated_at + first

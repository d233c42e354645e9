"""When a holder may be stopped at all: its first seconds are its own, as far as the pool says so."""

from __future__ import annotations

from cede.engine.share import Holding
from cede.engine.state import State


def protected(state: State, holding: Holding, holder_rights: int, waiter_rights: int) -> bool:
    """Whether a holder is inside its first seconds: `min_run` against equals, `reclaim_min_run`
    against owners.
    """
    allocation = state.allocations[holding.id]
    settings = state.pools[allocation.pool_id].settings
    first = settings.min_run if holder_rights == waiter_rights else settings.reclaim_min_run
    return bool(first) and state.now < allocation.allocated_at + first

"""When a holder may be stopped: its first seconds are its own, as far as the pool says."""

from __future__ import annotations

from cede.engine.share import Holding
from cede.engine.state import State


def protected(state: State, holding: Holding, holder_rights: int, waiter_rights: int) -> bool:
    """Whether a holder is inside its first seconds: `reclaim_min_run` against a waiter of higher
    rights, `min_run` against any other.
    """
    allocation = state.allocations[holding.id]
    settings = state.pools[allocation.pool_id].settings
    first = settings.reclaim_min_run if waiter_rights > holder_rights else settings.min_run
    return bool(first) and state.now < allocation.allocated_at + first

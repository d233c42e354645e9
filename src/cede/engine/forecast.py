"""When a demand would fit at the latest, as far as walltimes, partings and leases bound it."""

from __future__ import annotations

from cede.engine.fit import fits, free_now
from cede.engine.state import State, lease_over
from cede.model.allocation import Allocation
from cede.model.amounts import Amounts, add_to
from cede.model.lifecycle import AllocationState


def end_bound(state: State, allocation: Allocation) -> int | None:
    """The latest instant at which an allocation has certainly given its units back; None if nothing
    says.
    """
    if allocation.state is AllocationState.LOST:
        return None
    ends = [each for each in (allocation.ends_at,) if each is not None]
    if allocation.leaving and allocation.deadline is not None:
        ends.append(allocation.deadline)
    return min(ends, default=None)


def lease_bound(state: State, allocation: Allocation) -> int | None:
    """When its units return if its holder falls silent now."""
    request = state.requests.get(allocation.request_id)
    if allocation.lease_until is None or request is None:
        return None
    return lease_over(allocation.lease_until, request.lease)


def earliest_start(state: State, pool_id: str, demand: Amounts) -> int | None:
    """When the bounded holders alone have made room; None when an unbounded one is needed."""
    books = state.books[pool_id]
    room = free_now(books)
    if fits(demand, room):
        return state.now
    ends = sorted(
        (end, holding_id)
        for holding_id, holding in books.holdings.items()
        if not holding.earmark
        and (end := end_bound(state, state.allocations[holding_id])) is not None
    )
    for end, holding_id in ends:
        add_to(room, books.holdings[holding_id].amounts)
        if fits(demand, room):
            return max(end, state.now)
    return None

"""When a demand would fit at the latest, as far as walltimes, partings and leases bound it."""

from __future__ import annotations

from cede.engine.fit import fits, free_now
from cede.engine.state import State
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


def earliest_start(
    state: State, pool_id: str, demand: Amounts, owner_id: str | None = None
) -> int | None:
    """When the bounded holders alone have made room; None when an unbounded one is needed.

    What is promised to others is not coming to this one; what is promised to `owner_id` itself is.
    """
    books = state.books[pool_id]
    room = free_now(books)
    for key, amount in books.earmarked.items():
        room[key] -= amount
    if owner_id in books.earmarks:
        add_to(room, books.earmarks[owner_id].amounts)
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

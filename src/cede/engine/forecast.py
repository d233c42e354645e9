"""When a demand would fit at the latest, as far as walltimes, partings and leases bound it."""

from __future__ import annotations

from dataclasses import dataclass

from cede.engine.books import Books
from cede.engine.fit import fits, free_now
from cede.engine.site import locate
from cede.engine.standing import BORROWED, LOWEST
from cede.engine.state import State
from cede.model.allocation import Allocation
from cede.model.amounts import add_to
from cede.model.lifecycle import AllocationState
from cede.model.request import Request
from cede.model.shape import Footprint


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


@dataclass(frozen=True, slots=True)
class Start:
    """When a demand would fit at the latest and, in a pool of nodes, where."""

    at: int
    footprint: Footprint = ()


def earliest_start(state: State, books: Books, request: Request) -> Start | None:
    """When the bounded holders alone have made room; None when an unbounded one is needed.

    What is promised to others is not coming to this one; what is promised to itself is.
    """
    ends = sorted(
        (end, holding_id)
        for holding_id, holding in books.holdings.items()
        if not holding.earmark
        and (end := end_bound(state, state.allocations[holding_id])) is not None
    )
    if books.ground is not None:
        return _start_on_nodes(state, books, request, ends)
    demand = books.pool.metered(request.amounts)
    room = free_now(books)
    for key, amount in books.earmarked.items():
        room[key] -= amount
    if request.id in books.earmarks:
        add_to(room, books.earmarks[request.id].amounts)
    if fits(demand, room):
        return Start(state.now)
    for end, holding_id in ends:
        add_to(room, books.holdings[holding_id].amounts)
        if fits(demand, room):
            return Start(max(end, state.now))
    return None


def _start_on_nodes(
    state: State, books: Books, request: Request, ends: list[tuple[int, str]]
) -> Start | None:
    """The fewest ends after which it can be placed: more ends never make less room."""
    policy = next(each for each in state.places(request.id) if each.pool_id == books.pool.id)
    key = books.lane_of(policy.id, request)

    def after(count: int) -> Footprint | None:
        gone = [holding_id for _, holding_id in ends[:count]]
        own = (request.id,)
        return locate(state, books, key, BORROWED, LOWEST, promise=False, own=own, gone=gone)

    if after(len(ends)) is None:
        return None
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if after(middle) is None:
            low = middle + 1
        else:
            high = middle
    footprint = after(low)
    assert footprint is not None
    return Start(max(ends[low - 1][0], state.now) if low else state.now, footprint)

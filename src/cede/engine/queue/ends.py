"""The instant at which a holder has certainly given its units back."""

from __future__ import annotations

from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.lifecycle import AllocationState


def end_bound(state: State, allocation: Allocation) -> int | None:
    """The latest instant at which an allocation has certainly given its units back; None if there
    is no bound.
    """
    if allocation.state is AllocationState.LOST:
        return None
    ends = [each for each in (allocation.ends_at,) if each is not None]
    if allocation.leaving and allocation.deadline is not None:
        ends.append(allocation.deadline)
    return min(ends, default=None)


def ends_by(state: State, holding_id: str, instant: int | None) -> bool:
    """Whether a holder is certainly gone by a future instant. An overdue holder has already missed
    its bound.
    """
    if instant is None:
        return False
    end = end_bound(state, state.allocations[holding_id])
    return end is not None and state.now < end <= instant

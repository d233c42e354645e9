"""How a victim is stopped without losing work: the preemption sequence of document 004.

Events in, allocation out; nothing here looks at a state or a clock. Work that can save itself is
asked to (a hint) and has its checkpoint time-out for it. If it answers but is slow it gets half as
much again, once; if it asks to put it off it may, up to its bound in all; then it is stopped like
work that cannot save itself: SIGTERM, grace, SIGKILL, which are its agent's or client's to carry
out. Until the order to stop is given a victim can still be let go on.
"""

from __future__ import annotations

from dataclasses import replace

from cede.model import bounds
from cede.model.allocation import Allocation
from cede.model.lifecycle import AllocationState
from cede.model.parting import Checkpoint, Farewell, Parting


def begin(
    allocation: Allocation, farewell: Farewell, now: int, *, hint: int, heard_by: int, grace: int
) -> Allocation:
    """Ask a holder to part. One that has not started has nothing to save."""
    if farewell.checkpoint is Checkpoint.NONE or allocation.state is not AllocationState.RUNNING:
        return stop(allocation, now, heard_by=heard_by, grace=grace)
    parting = Parting(hint=hint, hinted_at=now, until=now + farewell.timeout)
    return replace(
        allocation,
        state=AllocationState.CHECKPOINTING,
        parting=parting,
        deadline=_latest(parting, farewell, heard_by, grace),
        told=False,
    )


def stop(allocation: Allocation, now: int, *, heard_by: int, grace: int) -> Allocation:
    """Give the order to stop. Agents hear of it with the commit; a client when it next renews."""
    return replace(
        allocation,
        state=AllocationState.STOPPING,
        deadline=max(now, heard_by) + grace + bounds.PARTING_MARGIN,
        told=bool(allocation.members),
    )


def answered(allocation: Allocation) -> Allocation:
    """The application has shown that it lives."""
    parting = allocation.parting
    if parting is None or parting.answered:
        return allocation
    return replace(allocation, parting=replace(parting, answered=True))


def deferred(allocation: Allocation, farewell: Farewell, wanted: int) -> tuple[Allocation, int]:
    """The application asked to put it off: granted up to its bound in all. What was granted."""
    parting = allocation.parting
    if parting is None:
        return allocation, 0
    granted = max(0, min(wanted, farewell.deferral_max - parting.deferred))
    moved = replace(
        parting,
        answered=True,
        until=parting.until + granted,
        deferred=parting.deferred + granted,
    )
    return replace(allocation, parting=moved), granted


def saved(allocation: Allocation, now: int, *, heard_by: int, grace: int) -> Allocation:
    """A checkpoint that answers the hint was verified: nothing is lost by stopping now."""
    assert allocation.parting is not None, allocation
    kept = replace(allocation, parting=replace(allocation.parting, saved=True))
    return stop(kept, now, heard_by=heard_by, grace=grace)


def over(
    allocation: Allocation, farewell: Farewell, now: int, *, heard_by: int, grace: int
) -> Allocation:
    """A hint's time is over: half as much again for one that answered, once; else the end."""
    parting = allocation.parting
    assert parting is not None, allocation
    if parting.answered and not parting.extended:
        longer = replace(parting, extended=True, until=parting.until + farewell.timeout // 2)
        return replace(allocation, parting=longer)
    failed = replace(allocation, parting=replace(parting, failed=True))
    return stop(failed, now, heard_by=heard_by, grace=grace)


def _latest(parting: Parting, farewell: Farewell, heard_by: int, grace: int) -> int:
    """When even the slowest farewell is over (L5)."""
    longest = farewell.timeout + farewell.timeout // 2 + farewell.deferral_max
    return max(parting.hinted_at + longest, heard_by) + grace + bounds.PARTING_MARGIN

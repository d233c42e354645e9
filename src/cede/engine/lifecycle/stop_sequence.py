"""The stop of a victim without losing work: the preemption sequence of document 004.

Events in, allocation out; nothing here reads a state or a clock. Work that can save itself gets a
hint and has its checkpoint time-out for it. If it answers but is slow, it gets half as much again,
once. If it asks for a deferral, it gets one, up to its bound in all. Then it is stopped like work
that cannot save itself: SIGTERM, grace, SIGKILL, which its agent or client carries out. Until the
order to stop is given, a victim can still be let go on.
"""

from __future__ import annotations

from typing import Any

from cede.model import bounds
from cede.model.allocation import Allocation
from cede.model.copying import replace
from cede.model.lifecycle import AllocationState
from cede.model.reason import Reason
from cede.model.stopping import Checkpoint, StopPolicy, StopProgress


def begin(
    allocation: Allocation,
    stop_policy: StopPolicy,
    now: int,
    *,
    hint: int,
    heard_by: int,
    grace: int,
    reason: Reason | None = None,
    taken_for: str | None = None,
) -> Allocation:
    """Ask a holder to stop. One that has not started has nothing to save."""
    why: Any = {"reason": reason, "taken_for": taken_for, "asked": None, "announced": True}
    if stop_policy.checkpoint is Checkpoint.NONE or allocation.state is not AllocationState.RUNNING:
        return stop(allocation, now, heard_by=heard_by, grace=grace, **why)
    stop_progress = StopProgress(hint=hint, hinted_at=now, until=now + stop_policy.timeout)
    return replace(
        allocation,
        state=AllocationState.CHECKPOINTING,
        stop_progress=stop_progress,
        deadline=_latest(stop_progress, stop_policy, heard_by, grace),
        told=False,
        **why,
    )


def stop(allocation: Allocation, now: int, *, heard_by: int, grace: int, **why: Any) -> Allocation:
    """Give the order to stop, and say why. Agents learn of it with the commit; a client when it
    next renews.
    """
    return replace(
        allocation,
        state=AllocationState.STOPPING,
        deadline=max(now, heard_by) + grace + bounds.STOP_PROGRESS_MARGIN,
        told=bool(allocation.members),
        **why,
    )


def answered(allocation: Allocation) -> Allocation:
    """Note that the application answered, so it lives."""
    stop_progress = allocation.stop_progress
    if stop_progress is None or stop_progress.answered:
        return allocation
    return replace(allocation, stop_progress=replace(stop_progress, answered=True))


def deferred(
    allocation: Allocation, stop_policy: StopPolicy, wanted: int
) -> tuple[Allocation, int]:
    """Defer the stop as the application asked, up to its bound in all; returns what was granted."""
    stop_progress = allocation.stop_progress
    if stop_progress is None:
        return allocation, 0
    granted = max(0, min(wanted, stop_policy.deferral_max - stop_progress.deferred))
    moved = replace(
        stop_progress,
        answered=True,
        until=stop_progress.until + granted,
        deferred=stop_progress.deferred + granted,
    )
    return replace(allocation, stop_progress=moved), granted


def saved(allocation: Allocation, now: int, *, heard_by: int, grace: int) -> Allocation:
    """Stop after a verified checkpoint that answers the hint: no work is lost."""
    assert allocation.stop_progress is not None, allocation
    kept = replace(allocation, stop_progress=replace(allocation.stop_progress, saved=True))
    return stop(kept, now, heard_by=heard_by, grace=grace)


def over(
    allocation: Allocation, stop_policy: StopPolicy, now: int, *, heard_by: int, grace: int
) -> Allocation:
    """End a hint's time: half as much again for one that answered, once; else the order to stop."""
    stop_progress = allocation.stop_progress
    assert stop_progress is not None, allocation
    if stop_progress.answered and not stop_progress.extended:
        longer = replace(
            stop_progress, extended=True, until=stop_progress.until + stop_policy.timeout // 2
        )
        return replace(allocation, stop_progress=longer)
    failed = replace(allocation, stop_progress=replace(stop_progress, failed=True))
    return stop(failed, now, heard_by=heard_by, grace=grace)


def _latest(stop_progress: StopProgress, stop_policy: StopPolicy, heard_by: int, grace: int) -> int:
    """The end of the slowest possible stop (L5)."""
    longest = stop_policy.timeout + stop_policy.timeout // 2 + stop_policy.deferral_max
    return max(stop_progress.hinted_at + longest, heard_by) + grace + bounds.STOP_PROGRESS_MARGIN

"""The allowed changes of state (S16). The table in docs/reference/lifecycle.md is this one."""

from __future__ import annotations

from enum import StrEnum


class RequestStatus(StrEnum):
    QUEUED = "queued"
    ALLOCATED = "allocated"
    PREEMPTING = "preempting"
    SUSPENDED = "suspended"
    PREEMPTED = "preempted"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    RELEASED = "released"
    FAILED = "failed"


class AllocationState(StrEnum):
    GRANTED = "granted"
    STARTING = "starting"
    RUNNING = "running"
    CHECKPOINTING = "checkpointing"
    STOPPING = "stopping"
    LOST = "lost"
    ENDED = "ended"


_R = RequestStatus
_A = AllocationState

REQUEST_MOVES: dict[RequestStatus, frozenset[RequestStatus]] = {
    _R.QUEUED: frozenset({_R.ALLOCATED, _R.REJECTED, _R.CANCELLED}),
    _R.ALLOCATED: frozenset(
        {_R.PREEMPTING, _R.RELEASED, _R.FAILED, _R.CANCELLED, _R.QUEUED, _R.SUSPENDED, _R.PREEMPTED}
    ),
    _R.PREEMPTING: frozenset(
        {_R.ALLOCATED, _R.QUEUED, _R.SUSPENDED, _R.PREEMPTED, _R.RELEASED, _R.FAILED, _R.CANCELLED}
    ),
    _R.SUSPENDED: frozenset({_R.ALLOCATED, _R.CANCELLED}),
    _R.PREEMPTED: frozenset(),
    _R.REJECTED: frozenset(),
    _R.CANCELLED: frozenset(),
    _R.RELEASED: frozenset(),
    _R.FAILED: frozenset(),
}

ALLOCATION_MOVES: dict[AllocationState, frozenset[AllocationState]] = {
    _A.GRANTED: frozenset({_A.STARTING, _A.RUNNING, _A.STOPPING, _A.LOST, _A.ENDED}),
    _A.STARTING: frozenset({_A.RUNNING, _A.STOPPING, _A.LOST, _A.ENDED}),
    _A.RUNNING: frozenset({_A.CHECKPOINTING, _A.STOPPING, _A.LOST, _A.ENDED}),
    _A.CHECKPOINTING: frozenset({_A.RUNNING, _A.STOPPING, _A.LOST, _A.ENDED}),
    _A.STOPPING: frozenset({_A.RUNNING, _A.GRANTED, _A.LOST, _A.ENDED}),
    _A.LOST: frozenset({_A.RUNNING, _A.STOPPING, _A.ENDED}),
    _A.ENDED: frozenset(),
}

WAITING = frozenset({_R.QUEUED, _R.SUSPENDED})
HOLDING = frozenset({_R.ALLOCATED, _R.PREEMPTING})
TERMINAL = frozenset(status for status, moves in REQUEST_MOVES.items() if not moves)
LIVE = frozenset(set(_A) - {_A.ENDED})
# Asked to stop or to save: their capacity may be promised to other waiters.
LEAVING = frozenset({_A.CHECKPOINTING, _A.STOPPING})

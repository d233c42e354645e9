"""The ends of holding and waiting: release, retry, failure, expiry; for commands and passes."""

from __future__ import annotations

from collections import deque

from cede.engine.ledger.admit import paused
from cede.engine.lifecycle.pausing import pause
from cede.engine.lifecycle.stopping import folders_of, hint_over
from cede.engine.state.due import deadline_of, lease_end
from cede.engine.state.state import State
from cede.engine.state.timers import Key
from cede.model import bounds
from cede.model.allocation import Allocation
from cede.model.copying import replace
from cede.model.durations import seconds
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.reason import Code, Reason
from cede.model.request import OnSilence, Preemptions, Request
from cede.model.stopping import EXIT_SAVED, Checkpoint, Pin, Resume


def end_allocation(state: State, allocation: Allocation, *, lost: int = 0) -> None:
    ended = replace(allocation, state=AllocationState.ENDED, ended_at=state.now, lease_until=None)
    state.put(replace(ended, lost=lost))


def unsaved(state: State, request: Request, allocation: Allocation) -> int:
    """The time since its last checkpoint, or its start: what stopping it loses."""
    started = allocation.started_at
    if started is None:  # agents report starts; work without an agent starts at once
        started = state.now if allocation.members else allocation.allocated_at
    saved = 0 if request.saved is None else request.saved.at
    return max(0, state.now - max(started, saved))


def finish(
    state: State,
    request: Request,
    status: RequestStatus,
    reason: Reason | None,
    *,
    wasted: bool = False,
) -> Request:
    """End a request for good and, if it did not end well, the requests that depend on it; `wasted`
    means that its unsaved work was taken from it.
    """
    ended = _end(state, request, status, reason, wasted=wasted)
    failed = deque(() if status is RequestStatus.RELEASED else (ended,))
    while failed:
        first = failed.popleft()
        for each in state.gates.dependants(first):
            failed.append(_end(state, each, RequestStatus.CANCELLED, follows_failed(first)))
    return ended


def follows_failed(first: Request) -> Reason:
    """The reason of a request whose dependency did not end well. In a chain the cause stays that of
    the first.
    """
    reason, status = first.reason, str(first.status)
    detail = {"dependency": first.ref, "status": status}
    if reason is None or reason.code is not Code.DEPENDENCY_FAILED:
        cause = status if reason is None else reason.text
        return Reason(Code.DEPENDENCY_FAILED, {**detail, "cause": cause})
    root, cause = reason.detail.get("root"), reason.detail["cause"]
    if root is None:
        root = reason.detail["dependency"]
        cause = f"{root}: {cause}"
    return Reason(Code.DEPENDENCY_FAILED, {**detail, "root": root, "cause": cause})


def _end(
    state: State,
    request: Request,
    status: RequestStatus,
    reason: Reason | None,
    *,
    wasted: bool = False,
) -> Request:
    """End one request, with what it still held or was promised."""
    allocation = state.allocation_of(request.id)
    if allocation is not None:
        lost = unsaved(state, request, allocation) if wasted else 0
        end_allocation(state, allocation, lost=lost)
    ended = replace(
        request, status=status, reason=reason, earmark=None, withhold=None, lease_until=None
    )
    state.put(ended)
    state.emit(
        str(status),
        request_id=request.id,
        pool_id=allocation.pool_id if allocation else None,
        **({"reason": reason.to_dict()} if reason else {}),
    )
    return ended


def stopped(
    state: State, request: Request, allocation: Allocation, *, saved: bool = False
) -> Request:
    """End the attempt of a preempted holder that has stopped: it goes back to the queue with its
    first submit time, if it may (S18), and is suspended there if it `saved` its work.
    """
    reason = request.reason or Reason(Code.WORK_LEFT)
    if request.cancelled:
        return finish(state, request, RequestStatus.CANCELLED, reason)
    # An over-limit stop uses up no retries, because a limit only pauses work (L8).
    counted = request.retry.preemptions is Preemptions.COUNT and reason.code is not Code.OVER_LIMIT
    request = replace(request, preempted_count=request.preempted_count + 1)
    if counted and request.retry.max_retries == 0:
        by = {"rule": str(reason.code), **reason.detail}
        return finish(
            state, request, RequestStatus.PREEMPTED, Reason(Code.PREEMPTED, by), wasted=True
        )
    status = RequestStatus.SUSPENDED if saved else RequestStatus.QUEUED
    return _retry(state, request, allocation, counted, reason, status, wasted=True)


def left(state: State, request: Request, allocation: Allocation) -> Request:
    """End an attempt that ended by itself with exit code 75, which says that it saved itself.

    With a checkpoint of this attempt that is true. Without one it is believed if it was ever told
    to stop, a few times in a row.
    """
    if request.saved is not None and request.saved.attempt == allocation.attempt:
        return stopped(state, request, allocation, saved=True)
    times = request.left_count + 1
    announced = allocation.announced or allocation.stop_progress is not None
    if not announced or times >= bounds.LEFT_MAX:
        return failed(state, replace(request, left_count=0), allocation, EXIT_SAVED)
    return stopped(state, replace(request, left_count=times), allocation)


def failed(
    state: State, request: Request, allocation: Allocation, exit_code: int | None
) -> Request:
    """End an attempt whose work failed: it is retried if its retry policy allows it and it was not
    cancelled.
    """
    shown = "unknown" if exit_code is None else exit_code
    return failed_for(state, request, allocation, Reason(Code.WORK_FAILED, {"exit_code": shown}))


def failed_for(state: State, request: Request, allocation: Allocation, reason: Reason) -> Request:
    if request.cancelled:
        return finish(state, request, RequestStatus.CANCELLED, request.reason)
    if request.retry.max_retries == 0:
        return finish(state, request, RequestStatus.FAILED, reason)
    return _retry(state, request, allocation, True, reason)


def lost(state: State, request: Request, allocation: Allocation, reason: Reason) -> Request:
    """End an attempt that a machine ended: it is retried, which uses up none of its own retries
    (S18).
    """
    if request.cancelled:
        return finish(state, request, RequestStatus.CANCELLED, request.reason)
    request = replace(request, lost_count=request.lost_count + 1)
    if request.lost_count > bounds.LOST_MAX:
        detail = {"attempt": request.attempt, "cause": reason.text}
        exhausted = Reason(Code.RETRIES_EXHAUSTED, detail)
        return finish(state, request, RequestStatus.FAILED, exhausted, wasted=True)
    return _retry(state, request, allocation, False, reason, wasted=True)


def put_back(state: State, request: Request, allocation: Allocation, reason: Reason) -> Request:
    """End an attempt whose nodes outside jobs took before it started: it waits again, and nothing
    is counted.
    """
    if request.cancelled:
        return finish(state, request, RequestStatus.CANCELLED, request.reason)
    return _retry(state, request, allocation, False, reason)


def _retry(
    state: State,
    request: Request,
    allocation: Allocation,
    counted: bool,
    reason: Reason,
    status: RequestStatus = RequestStatus.QUEUED,
    *,
    wasted: bool = False,
) -> Request:
    used = request.retries_used + counted
    if used > request.retry.max_retries:
        detail = {"attempt": request.attempt, "cause": reason.text}
        exhausted = Reason(Code.RETRIES_EXHAUSTED, detail)
        return finish(state, request, RequestStatus.FAILED, exhausted, wasted=wasted)
    lost = unsaved(state, request, allocation) if wasted else 0
    end_allocation(state, allocation, lost=lost)
    delay = request.retry.delay_before(used) if counted else 0
    again = replace(
        request,
        status=status,
        reason=reason,
        attempt=request.attempt + 1,
        retries_used=used,
        not_before=state.now + delay if delay else 0,
        lease_until=None if request.lease is None else state.now + request.lease + delay,
        pin=_pin(state, request, allocation),
    )
    state.put(again)
    kind = "suspended" if status is RequestStatus.SUSPENDED else "requeued"
    state.emit(kind, request_id=request.id, pool_id=allocation.pool_id, attempt=again.attempt)
    if paused(state, again):  # an edit made it impossible meanwhile (L8)
        pause(state, again)
    return state.requests[again.id]


def _pin(state: State, request: Request, allocation: Allocation) -> Pin | None:
    """The pin of the next attempt to the folders of its checkpoint, for a time or for ever.

    An attempt that ended unread may have left a newer checkpoint than is known; one that never
    started has left none.
    """
    saved, asked = request.saved, request.stop_policy
    if request.work is None or asked.checkpoint is Checkpoint.NONE:
        return None
    if allocation.started_at is None and request.pin is not None:
        return request.pin
    folders = () if saved is None else saved.folders
    if any(each.unread for each in allocation.members) and allocation.started_at is not None:
        folders = folders_of(state, allocation)
    if not folders:
        return None
    if asked.resume is Resume.REQUIRED and saved is not None:
        return Pin(folders, None)
    until = state.now + asked.resume_wait
    return Pin(folders, until) if asked.resume_wait else None


def expire(state: State, due: list[Key]) -> bool:
    """End expired leases, stops, pins and withholding; whether there were any."""
    changed = False
    for kind, entity_id in due:
        if kind == "request" and (request := state.requests.get(entity_id)) is not None:
            changed |= _expire_request(state, request)
        if kind == "allocation" and (allocation := state.allocations.get(entity_id)) is not None:
            changed |= allocation.live and _expire_allocation(state, allocation)
    return changed


def _expire_request(state: State, request: Request) -> bool:
    leased = request.waiting and request.lease_until is not None
    if leased and lease_end(request.lease_until or 0, request.lease, state.since) <= state.now:
        finish(state, request, RequestStatus.CANCELLED, _silent(request))
        return True
    if request.waiting and request.pin is not None and _is_over(request.pin, state.now):
        state.put(replace(request, pin=None))
        state.emit("resume_elsewhere", request_id=request.id)
        return True
    if request.withhold is not None and request.withhold.until <= state.now:
        state.put(replace(request, withhold=None, bypassed=0))
        return True
    return False


def _is_over(pin: Pin, now: int) -> bool:
    return pin.until is not None and pin.until <= now


def _expire_allocation(state: State, allocation: Allocation) -> bool:
    if allocation.state is AllocationState.LOST:
        return False
    request = state.requests[allocation.request_id]
    keep = request.lease is None or request.on_silence is OnSilence.KEEP
    asked = allocation.stop_progress
    saving = allocation.state is AllocationState.CHECKPOINTING and asked is not None
    if saving and asked is not None and asked.until <= state.now:
        hint_over(state, allocation)
        return True
    settings = state.pools[allocation.pool_id].settings
    deadline = deadline_of(allocation, request, settings, state.since)
    if allocation.leaving and (deadline or 0) <= state.now:
        # Only an agent knows for certain that its work has stopped.
        if keep or request.work is not None:
            lose(state, allocation)
        else:
            stopped(state, request, allocation)
        return True
    if allocation.lease_until is None or allocation.state is AllocationState.STOPPING:
        return False
    if lease_end(allocation.lease_until, request.lease, state.since) > state.now:
        return False
    if keep:
        lose(state, allocation)
    elif allocation.leaving:
        stopped(state, request, allocation)
    else:
        finish(state, request, RequestStatus.FAILED, _silent(request))
    return True


def lose(state: State, allocation: Allocation) -> None:
    """Mark a silent holder as lost: its units stay held, and are not about to be free (S14)."""
    state.put(replace(allocation, state=AllocationState.LOST))
    state.emit("lost", request_id=allocation.request_id, pool_id=allocation.pool_id)


def _silent(request: Request) -> Reason:
    return Reason(Code.LEASE_EXPIRED, {"seconds": seconds(request.lease)})

"""The commands on requests by people and programs. Each changes the state or raises; the caller
undoes a refused one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter

from cede.engine.ledger.admit import candidates, no_policy, paused, rejection
from cede.engine.ledger.tenants import refusal
from cede.engine.lifecycle import endings, resuming
from cede.engine.lifecycle.pausing import pause
from cede.engine.lifecycle.stopping import (
    answer,
    defer,
    failed_reason,
    request_stop,
    save,
    stop_now,
)
from cede.engine.state.state import State
from cede.model import bounds
from cede.model.allocation import Allocation
from cede.model.amounts import UNBOUNDED_WHEN_ABSENT, Amounts, parse_amounts
from cede.model.copying import replace
from cede.model.errors import Conflict, Invalid, NotFound, Refused
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.reason import Code, Reason
from cede.model.request import Request
from cede.model.stopping import EXIT_SAVED
from cede.model.work import Work


@dataclass(frozen=True, slots=True)
class Submission(Request):
    """A request as submitted: it has no place in the journal yet."""

    unpooled: str = "allow"  # or "refuse": for a subject without any policy
    hopeless: Reason | None = None  # a dependency that has already failed


_NAMES = tuple(each.name for each in fields(Request))
_values = attrgetter(*_NAMES)
_PLACED = tuple(map(_NAMES.index, ("submitted_at", "index", "lease_until")))


@dataclass(frozen=True, slots=True)
class Untracked:
    """The answer to a step whose subject has no policy: it runs and is not counted."""

    reason: Reason


def submit(state: State, submission: Submission, now: int) -> Request | Untracked:
    """Queue a request, or reject it at once with every pool's reason (L8)."""
    state.now = now
    subject = submission.subject
    if not candidates(state, subject, submission.pool_id):
        # Untracked work is run by its client; work for agents cannot be untracked.
        if (
            submission.work is not None
            or submission.unpooled == "refuse"
            or submission.pool_id is not None
        ):
            raise Refused(no_policy(state, subject, submission.pool_id))
        return Untracked(Reason(Code.UNTRACKED, {"subject": str(subject)}))
    _check_limit(state, submission.pool_id, submission.terms.limit)
    if submission.terms.tenant:
        _check_quota(state, submission)
    request = _request(state, submission, now)
    state.put(request)
    if state.places(request.id):
        state.emit("submitted", request_id=request.id)
        if submission.hopeless is not None:
            return endings.finish(state, request, RequestStatus.CANCELLED, submission.hopeless)
        return request
    reason = rejection(state, request)
    return endings.finish(state, request, RequestStatus.REJECTED, reason)


def _check_quota(state: State, submission: Submission) -> None:
    tasks = 1 if submission.shape is None else submission.shape.tasks
    full = refusal(state, submission.terms.tenant, tasks)
    if full is not None:
        raise Refused(full)


def _request(state: State, submission: Submission, now: int) -> Request:
    values = list(_values(submission))
    until = None if submission.lease is None else now + submission.lease
    for at, value in zip(_PLACED, (now, state.next_index(), until), strict=True):
        values[at] = value
    return Request(*values)


def renew(
    state: State,
    request_id: str,
    now: int,
    *,
    attempt: int | None = None,
    running: bool | None = None,
) -> Request:
    """Extend a lease and return the request as it is; for a holder that must stop this is the
    notice.
    """
    state.now = now
    request = _live_request(state, request_id)
    _check_fence(request, attempt)
    until = None if request.lease is None else now + request.lease
    allocation = state.allocation_of(request_id)
    if allocation is None:
        if until is not None:
            state.put(replace(request, lease_until=until))
        return state.requests[request_id]
    if request.status is RequestStatus.PREEMPTING:
        _tell(state, allocation, until)
        return request
    _renew_holder(state, allocation, until, bool(running))
    return state.requests[request_id]


def _renew_holder(state: State, allocation: Allocation, until: int | None, running: bool) -> None:
    new = allocation.state
    if new is AllocationState.LOST or (running and allocation.started_at is None):
        new = AllocationState.RUNNING
    started = allocation.started_at
    if started is None and new is AllocationState.RUNNING:
        started = state.now
    if (new, started, until) != (allocation.state, allocation.started_at, allocation.lease_until):
        state.put(replace(allocation, state=new, started_at=started, lease_until=until))


def _tell(state: State, allocation: Allocation, until: int | None) -> None:
    """Tell a holder that it must stop, or save its work. A lost one is stopping again, with a new
    deadline; one that saves keeps its lease meanwhile.
    """
    if allocation.state is AllocationState.LOST:
        grace = state.pools[allocation.pool_id].settings.grace
        deadline = state.now + grace + bounds.STOP_PROGRESS_MARGIN
        state.put(replace(allocation, state=AllocationState.STOPPING, told=True, deadline=deadline))
    elif allocation.state is AllocationState.CHECKPOINTING:
        state.put(replace(allocation, told=True, lease_until=until))
    elif not allocation.told:
        state.put(replace(allocation, told=True))


@dataclass(frozen=True, slots=True)
class Said:
    """A message of work that its client holds, while it is asked to save itself. `seconds` are
    milliseconds of a deferral.
    """

    kind: str  # answered, progress, deferral, saved or found
    seconds: int = 0
    text: str = ""
    checkpoint: str = ""
    size: int = 0
    hint: int = 0  # the hint that a checkpoint answers
    ids: tuple[str, ...] = ()  # verified checkpoints in its folder, newest first


def said(state: State, request_id: str, said: Said, now: int, *, attempt: int) -> Request:
    """Apply a message of an application to its client."""
    state.now = now
    request = _live_request(state, request_id)
    _check_fence(request, attempt)
    allocation = state.allocation_of(request_id)
    if allocation is None:
        raise Conflict("not_holding", f"request {request_id} holds nothing")
    if said.kind == "saved":
        save(state, allocation, 0, said.checkpoint, said.size, hint=said.hint)
    elif said.kind == "found":
        resuming.found_by_holder(state, request, said.ids)
    elif said.kind == "deferral":
        defer(state, allocation, said.seconds, said.text)
    else:
        answer(state, allocation)
    return state.requests[request_id]


def release(
    state: State,
    request_id: str,
    now: int,
    *,
    outcome: str = "done",
    attempt: int | None = None,
    exit_code: int | None = None,
) -> Request:
    """End a holding: `done`, `failed`, or `stopped` because it was asked to.

    A victim that ends by itself meanwhile is done, not preempted. Releasing a waiter cancels it.
    """
    state.now = now
    request = _live_request(state, request_id)
    _check_fence(request, attempt)
    allocation = state.allocation_of(request_id)
    if allocation is None:
        return cancel(state, request_id, now, actor="its holder")
    if request.work is not None:
        raise Conflict("agents_work", f"request {request_id} is run by agents; cancel it instead")
    if outcome == "done":
        return endings.finish(state, request, RequestStatus.RELEASED, None)
    asked = allocation.stop_progress
    if outcome == "failed":
        if asked is not None and asked.saved:
            return endings.stopped(state, request, allocation, saved=True)
        if exit_code == EXIT_SAVED:
            return endings.left(state, request, allocation)
        return endings.failed(state, request, allocation, exit_code)
    if request.status is not RequestStatus.PREEMPTING:
        raise Conflict(
            "not_preempting",
            f"request {request_id} was not asked to stop; release it with outcome done or failed",
        )
    if asked is not None and asked.failed:
        return endings.failed_for(state, request, allocation, failed_reason(request))
    return endings.stopped(state, request, allocation, saved=asked is not None and asked.saved)


def hand_over(state: State, request_id: str, work: Work, now: int, *, attempt: int) -> Request:
    """Let the agent of its node run the work from now on: its client holds the units and has
    started nothing.

    A repeated call changes nothing. Agents run later attempts as well.
    """
    state.now = now
    request = _live_request(state, request_id)
    _check_fence(request, attempt)
    if request.work is not None:
        return request
    allocation = state.allocation_of(request_id)
    if allocation is None or len(allocation.members) != 1:
        raise Conflict("no_node", f"request {request_id} holds no node whose agent could run it")
    if allocation.state is not AllocationState.GRANTED:
        raise Conflict("not_granted", f"request {request_id} is {allocation.state}, not granted")
    state.put(replace(request, work=work, lease=None, lease_until=None))
    state.put(replace(allocation, lease_until=None))
    state.emit("handed_over", request_id=request_id, pool_id=allocation.pool_id)
    return state.requests[request_id]


def cancel(state: State, request_id: str, now: int, *, actor: str) -> Request:
    """End a waiter at once; ask a holder to stop, after which it is cancelled."""
    state.now = now
    request = _live_request(state, request_id)
    reason = Reason(Code.CANCELLED, {"actor": actor})
    allocation = state.allocation_of(request_id)
    if allocation is None:
        return endings.finish(state, request, RequestStatus.CANCELLED, reason)
    if request.status is RequestStatus.PREEMPTING:
        state.put(replace(request, reason=reason))
        if allocation.state is AllocationState.CHECKPOINTING:
            stop_now(state, allocation)  # its work need not be saved any more
    else:
        request_stop(state, allocation.id, reason, taken_for=None)
    return state.requests[request_id]


def set_limit(state: State, request_id: str, limit: object, now: int) -> list[Request]:
    """Change the amounts that a request may hold, while it waits or runs; the map replaces the old
    one.

    Independent tasks share one limit, so all live ones get it.
    """
    state.now = now
    named = state.requests.get(request_id)
    first = request_id if named is None or named.part_of is None else named.part_of
    alive = parts(state, first)
    if not alive:
        alive = [_live_request(state, request_id)]
    amounts = parse_amounts(limit, "limit")
    for each in alive:
        _check_limit(state, each.pool_id, amounts)
        _put_limit(state, each, amounts)
    return [state.requests[each.id] for each in alive]


def _put_limit(state: State, request: Request, limit: Amounts) -> None:
    if dict(request.terms.limit) == dict(limit):
        return
    before = paused(state, request)
    changed = replace(request, terms=replace(request.terms, limit=limit))
    state.put(changed)
    state.emit("limit_changed", request_id=request.id, limit=dict(limit))
    if paused(state, changed) and not before:
        pause(state, changed)
    elif before and not paused(state, changed):
        state.emit("unpaused", request_id=request.id)


def _check_limit(state: State, pool_id: str | None, limit: Amounts) -> None:
    """Refuse a key that the named pool does not have. Without a named pool any key may have a
    meaning somewhere.
    """
    if pool_id is None:
        return
    pool = state.pools[pool_id]
    for key in limit:
        if key not in pool.capacity and key not in UNBOUNDED_WHEN_ABSENT:
            known = ", ".join(sorted(pool.capacity))
            fix = f"it has {known}: limit one of these, or leave {key} out"
            if not known:
                fix = f"no node has joined it yet: wait for one, or leave {key} out"
            raise Invalid(f"limit.{key}", f"pool {pool.name} has no such key; {fix}")


def parts(state: State, request_id: str) -> list[Request]:
    """The live independent tasks that were submitted together, by the id of the first."""
    return [
        each
        for each in state.requests.values()
        if request_id in (each.id, each.part_of) and not each.ended
    ]


def _live_request(state: State, request_id: str) -> Request:
    request = state.requests.get(request_id)
    if request is None:
        raise NotFound("live request", request_id)
    if request.ended:
        raise Conflict("already_ended", f"request {request_id} has already ended: {request.status}")
    return request


def _check_fence(request: Request, attempt: int | None) -> None:
    """S13: refuse a report from an attempt that is not the current one."""
    if attempt is not None and attempt != request.attempt:
        raise Conflict(
            "stale_fence",
            f"attempt {attempt} of request {request.id} is over; it is at {request.attempt} now",
        )

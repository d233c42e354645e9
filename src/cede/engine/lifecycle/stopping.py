"""Stops as changes of the state: the ask to stop, the answers to it, and the end of its time."""

from __future__ import annotations

from cede.engine.lifecycle import stop_sequence as stop_progress
from cede.engine.state.due import lease_over
from cede.engine.state.state import State
from cede.model import bounds
from cede.model.allocation import Allocation, Member, Phase
from cede.model.copying import replace
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.node import GIVEN_UP_AFTER
from cede.model.reason import TAKINGS, Code, Reason
from cede.model.request import PLAIN, Request
from cede.model.stopping import Saved, StopPolicy


def request_stop(
    state: State,
    allocation_id: str,
    reason: Reason,
    taken_for: str | None,
    *,
    saves: bool = False,
) -> None:
    """Ask a holder to give its units back, by its deadline at the latest. A victim of a waiter, or
    one that `saves` without a waiter, may save its work first.
    """
    allocation = state.allocations[allocation_id]
    request = state.requests[allocation.request_id]
    saves = saves or taken_for is not None
    asked = stop_progress.begin(
        allocation,
        request.stop_policy if saves else PLAIN,  # only a victim's work is worth keeping
        state.now,
        hint=state.next_index(),
        heard_by=heard_by(state, allocation),
        grace=_grace(state, allocation),
        reason=reason,
        taken_for=taken_for,
    )
    state.put(asked)
    state.put(replace(request, status=RequestStatus.PREEMPTING, reason=reason))
    _tell(state, _word(reason), allocation, reason=reason.to_dict())


def _word(reason: Reason) -> str:
    """The event of a stop. Only capacity that another request gets counts as preempted."""
    if reason.code is Code.CANCELLED:
        return "cancelling"
    return "preempting" if reason.code in TAKINGS else "stopping"


def stop_now(state: State, allocation: Allocation) -> None:
    """Give the order to stop at once."""
    state.put(
        stop_progress.stop(
            allocation,
            state.now,
            heard_by=heard_by(state, allocation),
            grace=_grace(state, allocation),
        )
    )


def heard_by(state: State, allocation: Allocation) -> int:
    """The instant at which the holder has learned of an order, or is no longer waited for."""
    ends = [allocation.lease_until or 0]
    for member in allocation.members:
        node = state.nodes[member.node_id]
        heard = state.beats.get(node.id, state.now)
        over = lease_over(max(heard + node.lease, node.promised), node.lease)
        ends.append(min(over, heard + GIVEN_UP_AFTER * node.heartbeat))
    return max(ends)


def _grace(state: State, allocation: Allocation) -> int:
    return state.pools[allocation.pool_id].settings.grace


def answer(state: State, allocation: Allocation) -> None:
    """Note that the application is working on its checkpoint."""
    changed = stop_progress.answered(allocation)
    if changed is not allocation:
        state.put(changed)


def defer(state: State, allocation: Allocation, wanted: int, why: str) -> int:
    """Defer a stop as the application asks; returns what was granted."""
    if allocation.state is not AllocationState.CHECKPOINTING:
        return 0
    changed, granted = stop_progress.deferred(allocation, _stop_policy(state, allocation), wanted)
    state.put(changed)
    _tell(state, "deferred", allocation, granted=granted, wanted=wanted, why=why)
    return granted


def save(
    state: State, allocation: Allocation, task: int, checkpoint: str, size: int, *, hint: int
) -> None:
    """Note a verified checkpoint of one task. The newest that every task has is the resume point
    (S17).

    A stop's hint is answered when every task has written a checkpoint for it: stopping then loses
    nothing. A holder that was only asked to save itself goes on.
    """
    if allocation.members:
        allocation = _note_saved(allocation, task, checkpoint, hint)
        state.put(allocation)
        checkpoint = allocation.common
    request = state.requests[allocation.request_id]
    asked, ask = allocation.stop_progress, allocation.open_ask
    answers = asked is not None and has_answered(allocation, asked.hint, hint)
    answers_ask = ask is not None and has_answered(allocation, ask.number, hint)
    is_known = request.saved is not None and request.saved.id == checkpoint
    if checkpoint and not is_known:
        _commit(state, request, allocation, checkpoint, size)
    if ask is not None and answers_ask:
        done = replace(ask, over=True, until=state.now, took=state.now - ask.at)
        allocation = replace(allocation, asked=done)
    state.put(allocation)  # what is saved changes its place in its task group
    differ = any(each.saved != checkpoint for each in allocation.members)
    if (checkpoint and not is_known) or ((answers or answers_ask) and not differ):
        began = asked.hinted_at if asked is not None else ask.at if ask and answers_ask else None
        _tell(
            state,
            "checkpoint_saved",
            allocation,
            checkpoint=checkpoint,
            size=size,
            took=None if began is None else state.now - began,
            asked=ask.number if ask is not None and answers_ask else None,
        )
    if answers:
        conclude_saving(state, allocation)


def has_answered(allocation: Allocation, number: int, hint: int) -> bool:
    """Whether every live task has written a checkpoint for the hint `number`, the last one just now
    for `hint`.
    """
    if not allocation.members:
        return hint == number
    living = [each for each in allocation.members if each.phase is not Phase.ENDED]
    return hint == number and all(each.answered == number for each in living)


def conclude_saving(state: State, allocation: Allocation) -> None:
    """End the saving when all tasks have saved themselves. Different ids are reported and are no
    failure: the resume point is one that all have.
    """
    if len({each.saved for each in allocation.members}) > 1:
        ids = {str(each.task): each.saved for each in allocation.members}
        resume = allocation.common or None
        _tell(state, "checkpoints_differ", allocation, saved=ids, resume=resume)
    if allocation.state is AllocationState.CHECKPOINTING:
        heard, grace = heard_by(state, allocation), _grace(state, allocation)
        state.put(stop_progress.saved(allocation, state.now, heard_by=heard, grace=grace))
    elif allocation.stop_progress is not None:  # in time after all: it is stopping already
        state.put(replace(allocation, stop_progress=replace(allocation.stop_progress, saved=True)))


def _commit(
    state: State, request: Request, allocation: Allocation, checkpoint: str, size: int
) -> None:
    """Make a checkpoint of this attempt the resume point. The one before it is kept too: the
    attempt's own, or the one it started from.
    """
    last = request.saved
    is_own = last is not None and last.attempt == allocation.attempt
    saved = Saved(
        id=checkpoint,
        at=state.now,
        size=size,
        index=state.next_index(),
        attempt=allocation.attempt,
        folders=folders_of(state, allocation),
        before=last.id if last is not None and is_own else allocation.resume or "",
    )
    state.put(replace(request, saved=saved, left_count=0))


def folders_of(state: State, allocation: Allocation) -> tuple[str, ...]:
    """The checkpoint folder of each task; empty if a node has not reported its folder."""
    found = tuple(state.nodes[each.node_id].folder for each in allocation.members)
    return found if all(found) else ()


def reach(state: State, allocation: Allocation, task: int, hint: int, step: int) -> None:
    """Note the step at which a task of a gang can still save.

    When all tasks have answered, they save at the latest of these steps; a later answer moves it
    on, and a task that has already saved saves once more.
    """
    allocation = with_member(allocation, replace(allocation.members[task], reach=(hint, step)))
    state.put(allocation)
    living = [each.reach for each in allocation.members if each.phase is not Phase.ENDED]
    if any(number != hint for number, _ in living):
        return
    agreed = max(each for _, each in living)
    asked, ask = allocation.stop_progress, allocation.open_ask
    again = replace(
        allocation, members=tuple(replace(each, answered=0) for each in allocation.members)
    )
    if asked is not None and asked.hint == hint and agreed > asked.step:
        state.put(replace(again, stop_progress=replace(asked, step=agreed)))
    elif ask is not None and ask.number == hint and agreed > ask.step:
        state.put(replace(again, asked=replace(ask, step=agreed)))


def _note_saved(allocation: Allocation, task: int, checkpoint: str, hint: int) -> Allocation:
    member = allocation.members[task]
    others = [each for each in member.ids if each != checkpoint]
    known = (*others, checkpoint)[-bounds.CHECKPOINTS_KNOWN_MAX :]
    answered = hint or member.answered
    return with_member(allocation, replace(member, saved=checkpoint, ids=known, answered=answered))


def with_member(allocation: Allocation, member: Member) -> Allocation:
    members = list(allocation.members)
    members[member.task] = member
    return replace(allocation, members=tuple(members))


def hint_over(state: State, allocation: Allocation) -> None:
    """End the time for a checkpoint: more of it once for an application that answers, else the
    order to stop.
    """
    after = stop_progress.over(
        allocation,
        _stop_policy(state, allocation),
        state.now,
        heard_by=heard_by(state, allocation),
        grace=_grace(state, allocation),
    )
    state.put(after)
    if after.state is AllocationState.CHECKPOINTING:
        _tell(state, "extended", after)
    else:
        _tell(state, "checkpoint_failed", after)


def failed_reason(request: Request) -> Reason:
    rule = "?" if request.reason is None else str(request.reason.code)
    return Reason(Code.CHECKPOINT_FAILED, {"rule": rule})


def _stop_policy(state: State, allocation: Allocation) -> StopPolicy:
    return state.requests[allocation.request_id].stop_policy


def _tell(state: State, kind: str, allocation: Allocation, **data: object) -> None:
    known = {key: value for key, value in data.items() if value is not None}
    state.emit(kind, request_id=allocation.request_id, pool_id=allocation.pool_id, **known)

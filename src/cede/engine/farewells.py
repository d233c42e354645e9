"""Partings carried out on the state: who is asked to stop, what is heard of it, and when its time
is over.
"""

from __future__ import annotations

from dataclasses import replace

from cede.engine import parting
from cede.engine.due import lease_over
from cede.engine.state import State
from cede.model.allocation import Allocation
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.parting import Farewell, Saved
from cede.model.reason import TAKINGS, Code, Reason
from cede.model.request import PLAIN, Request


def part(
    state: State,
    allocation_id: str,
    reason: Reason,
    taken_for: str | None,
    *,
    saves: bool = False,
) -> None:
    """Ask a holder to give its units back, by its deadline at the latest. What is taken for a
    waiter, or `saves` without one, may save its work first.
    """
    allocation = state.allocations[allocation_id]
    request = state.requests[allocation.request_id]
    saves = saves or taken_for is not None
    asked = parting.begin(
        replace(allocation, taken_for=taken_for, reason=reason, asked=None),
        request.farewell if saves else PLAIN,  # only a victim's work is worth keeping
        state.now,
        hint=state.next_index(),
        heard_by=heard_by(state, allocation),
        grace=_grace(state, allocation),
    )
    state.put(asked)
    state.put(replace(request, status=RequestStatus.PREEMPTING, reason=reason))
    _tell(state, _word(reason), allocation, reason=reason.to_dict())


def _word(reason: Reason) -> str:
    """The event of a stop. Only capacity that somebody else is to have counts as preempted."""
    if reason.code is Code.CANCELLED:
        return "cancelling"
    return "preempting" if reason.code in TAKINGS else "stopping"


def stop_now(state: State, allocation: Allocation) -> None:
    """No more conversation: the order to stop."""
    state.put(
        parting.stop(
            allocation,
            state.now,
            heard_by=heard_by(state, allocation),
            grace=_grace(state, allocation),
        )
    )


def heard_by(state: State, allocation: Allocation) -> int:
    """When its holder has learned of an order, or its lease is over."""
    ends = [allocation.lease_until or 0]
    for member in allocation.members:
        node = state.nodes[member.node_id]
        heard = state.beats.get(node.id, state.now)
        ends.append(lease_over(heard + node.lease, node.lease))
    return max(ends)


def _grace(state: State, allocation: Allocation) -> int:
    return state.pools[allocation.pool_id].settings.grace


def answer(state: State, allocation: Allocation) -> None:
    """The application is at it."""
    changed = parting.answered(allocation)
    if changed is not allocation:
        state.put(changed)


def defer(state: State, allocation: Allocation, wanted: int, why: str) -> int:
    """The application asks for time; how much it gets."""
    if allocation.state is not AllocationState.CHECKPOINTING:
        return 0
    changed, granted = parting.deferred(allocation, _farewell(state, allocation), wanted)
    state.put(changed)
    _tell(state, "deferred", allocation, granted=granted, wanted=wanted, why=why)
    return granted


def save(
    state: State, allocation: Allocation, task: int, checkpoint: str, size: int, *, hint: int
) -> None:
    """A verified checkpoint of one task. It counts once every task has written that one (S17).

    Written in answer to a farewell's hint, it also ends the conversation: nothing is lost by
    stopping now. Whoever was only asked to save itself goes on.
    """
    if allocation.members:
        allocation = _note_saved(allocation, task, checkpoint)
        state.put(allocation)
        if any(each.saved != checkpoint for each in allocation.members):
            return
    request = state.requests[allocation.request_id]
    asked, ask = allocation.parting, allocation.open_ask
    answers = asked is not None and hint == asked.hint
    answers_ask = ask is not None and hint == ask.number
    known = request.saved is not None and request.saved.id == checkpoint
    if known and not answers and not answers_ask:
        return  # what a new attempt found there is heard of again, and is no newer for that
    saved = Saved(id=checkpoint, at=state.now, size=size, index=state.next_index())
    state.put(replace(request, saved=saved))
    took = None if asked is None else state.now - asked.hinted_at
    if ask is not None and answers_ask:
        took = state.now - ask.at
        allocation = replace(allocation, asked=replace(ask, over=True, until=state.now, took=took))
    state.put(allocation)  # what is saved changes its place among its family
    _tell(
        state,
        "checkpoint_saved",
        allocation,
        checkpoint=checkpoint,
        size=size,
        took=took,
        asked=ask.number if ask is not None and answers_ask else None,
    )
    if answers and allocation.state is AllocationState.CHECKPOINTING:
        state.put(
            parting.saved(
                allocation,
                state.now,
                heard_by=heard_by(state, allocation),
                grace=_grace(state, allocation),
            )
        )


def _note_saved(allocation: Allocation, task: int, checkpoint: str) -> Allocation:
    members = tuple(
        replace(each, saved=checkpoint) if each.task == task else each
        for each in allocation.members
    )
    return replace(allocation, members=members)


def hint_over(state: State, allocation: Allocation) -> None:
    """The time for a checkpoint is over: more of it once for who answers, else the end."""
    after = parting.over(
        allocation,
        _farewell(state, allocation),
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


def _farewell(state: State, allocation: Allocation) -> Farewell:
    return state.requests[allocation.request_id].farewell


def _tell(state: State, kind: str, allocation: Allocation, **data: object) -> None:
    known = {key: value for key, value in data.items() if value is not None}
    state.emit(kind, request_id=allocation.request_id, pool_id=allocation.pool_id, **known)

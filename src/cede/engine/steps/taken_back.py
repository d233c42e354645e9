"""Undoes decisions of the pass itself. Nothing of them was committed, so they leave neither a
decision in the plan nor an event.
"""

from __future__ import annotations

from typing import Any

from cede.engine.ledger.ledger import known_by
from cede.engine.state.changes import Event
from cede.engine.state.state import State
from cede.engine.victims.why_not import WhyNot
from cede.model.allocation import Allocation
from cede.model.copying import replace
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.plan import Decision, Grant, Plan, Preemption, Undone


def take_back_grant(state: State, plan: Plan, allocation_id: str, waiter_id: str) -> None:
    """Undo a grant of this pass: the request waits as before, and a waiter above it has the room.
    Its former promise and withheld room are used up.
    """
    plan.took_back = True
    before = plan.granted.pop(allocation_id)
    granted = state.allocations[allocation_id]
    ledger = state.ledgers[granted.pool_id]
    standing, kind = ledger.standing_of(allocation_id), known_by(ledger.holdings[allocation_id])
    plan.undone[allocation_id] = Undone(waiter_id, before.id, ledger.pool.id, standing, kind)
    state.drop(granted)
    state.put(replace(before, earmark=None, withhold=None))
    if before.earmark is not None:
        state.emit("earmark_died", request_id=before.id, pool_id=before.earmark.pool_id)


def take_back_stop(state: State, plan: Plan, allocation_id: str, *, last: bool = False) -> None:
    """Let a victim run on, also a victim of an earlier pass that has not been told yet. `last`
    puts it at the end of its share, as if it had come back.
    """
    plan.took_back = True
    before = plan.stopped.pop(allocation_id, None)
    if before is None:
        _go_on(state, state.allocations[allocation_id], last=last)
        return
    holder = before.holder
    state.put(replace(holder, index=state.next_index()) if last else holder)
    request = state.requests[holder.request_id]
    state.put(replace(request, status=RequestStatus.ALLOCATED, reason=None))


def _go_on(state: State, victim: Allocation, *, last: bool) -> None:
    # A holder that was asked to save runs, even if no start is known: its node may have been away.
    waits = victim.state is AllocationState.STOPPING and victim.started_at is None
    running = AllocationState.GRANTED if waits else AllocationState.RUNNING
    free = {"deadline": None, "taken_for": None, "reason": None, "told": False}
    free |= {"stop_progress": None}
    index = state.next_index() if last else victim.index
    state.put(replace(victim, index=index, state=running, **free))  # type: ignore[arg-type]
    request = state.requests[victim.request_id]
    state.put(replace(request, status=RequestStatus.ALLOCATED, reason=None))
    state.emit("goes_on", request_id=request.id, pool_id=victim.pool_id)


def forget_taken_back(state: State, plan: Plan) -> None:
    """At the end of a pass, remove what it undid from its decisions and events."""
    if not plan.took_back:
        return
    kept: list[Decision] = []
    granted: set[str] = set()
    for decision in reversed(plan.decisions):
        if isinstance(decision, Grant):
            again = decision.allocation_id in granted
            if again or decision.allocation_id not in state.allocations:
                continue
            granted.add(decision.allocation_id)
        elif isinstance(decision, Preemption) and decision.beneficiary_id is not None:
            victims = _still_stopped(state, decision)
            if not victims:
                continue
            decision = replace(
                decision, victims=victims, weighed=_weighed(state, decision, victims)
            )
        kept.append(decision)
    plan.decisions[:] = reversed(kept)
    state.events[:] = _told(state, plan)


def _still_stopped(state: State, decision: Preemption) -> tuple[str, ...]:
    """The victims of a preemption that are still stopped for its beneficiary."""
    return tuple(
        each
        for each in decision.victims
        if (victim := state.allocations.get(each)) is not None
        and victim.leaving
        and victim.taken_for == decision.beneficiary_id
    )


def _weighed(
    state: State, decision: Preemption, victims: tuple[str, ...]
) -> tuple[dict[str, Any], ...]:
    """The weighed candidates, without undone grants; a spared victim becomes 'not needed'."""
    held = (each for each in decision.weighed if each["id"] in state.allocations)
    return tuple(
        {**each, "chosen": False, "why_not": str(WhyNot.NOT_NEEDED)}
        if each["chosen"] and each["id"] not in victims
        else each
        for each in held
    )


_HOLDING = ("granted", "preempting")
_PROMISED = ("earmarked", "earmark_died")


def _told(state: State, plan: Plan) -> list[Event]:
    """The events without those of this pass that came to nothing: of a grant, stop or promise that
    was undone, and all but the last of repeated ones.
    """
    kept: list[Event] = []
    seen: set[tuple[str | None, str]] = set()
    mine = [each for each in state.events if each.index > plan.began]
    first: dict[str | None, str] = {}
    for event in mine:
        if event.kind in _PROMISED:
            first.setdefault(event.request_id, event.kind)
    new = {owner_id for owner_id, kind in first.items() if kind == "earmarked"}
    for event in reversed(mine):
        if event.kind in _HOLDING or event.kind in _PROMISED:
            about = "promise" if event.kind in _PROMISED else event.kind
            if (event.request_id, about) in seen:
                continue
            seen.add((event.request_id, about))
            if not _came_true(state, event, new):
                continue
            event = _for_whom(state, event)
        kept.append(event)
    return [*(each for each in state.events if each.index <= plan.began), *reversed(kept)]


def _for_whom(state: State, event: Event) -> Event:
    """A stop's event with the final beneficiary in its reason."""
    request = state.requests[event.request_id or ""]
    if event.kind != "preempting" or request.reason is None:
        return event
    return replace(event, data={**event.data, "reason": request.reason.to_dict()})


def _came_true(state: State, event: Event, new: set[str | None]) -> bool:
    """Whether an event still holds at the end of the pass; `new`: owners that had no promise
    before it.
    """
    assert event.request_id is not None
    held = state.allocation_of(event.request_id)
    if event.kind == "granted":
        return held is not None and not held.leaving
    if event.kind == "preempting":
        return held is not None and held.leaving
    return event.kind == "earmarked" or event.request_id not in new

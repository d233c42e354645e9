"""The engine's plan for a snapshot: one pass, or passes until nothing changes any more.

Until rest, victims save if they can, stop at once and go back to the queue; nodes that are alive
stay alive. When nothing changes, time moves to the next timer, up to the horizon. A state that
returns is reported as a loop: the engine promises that none does (L1).
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from cede.engine.admin import claims
from cede.engine.decide import decide
from cede.engine.explain.price import by_price, candidates
from cede.engine.explain.why import waiting_reason
from cede.engine.ledger.admit import paused, rejection
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.lifecycle import endings, reports, stopping
from cede.engine.state.state import State
from cede.engine.state.trial import what_if
from cede.model import bounds
from cede.model.allocation import Allocation, Phase
from cede.model.durations import parse_duration, seconds
from cede.model.errors import Conflict, NotFound
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.node import NodeState
from cede.model.plan import Grant, Plan, Preemption, Rejection
from cede.model.request import Request
from cede.snapshot.claims import Asked, read_claims
from cede.snapshot.reader import load


def run(snapshot: object, until_rest: bool = False, horizon: object = None) -> dict[str, Any]:
    """Plan a snapshot. The answer is plain data, the same as `cede plan --json` prints. A horizon
    runs passes until then.
    """
    state = load(snapshot)
    state.eager = True  # compute shares before each pass
    last = state.now + (0 if horizon is None else parse_duration(horizon, "horizon"))
    _turn_brokers_off(state)
    names = _names(state, snapshot)
    first = [_claim(state, each, names) for each in read_claims(snapshot)]
    first += [_decision(state, each, names) for each in _reject(state, snapshot)]
    goes_on = until_rest or horizon is not None
    result = _until_rest(state, last, names) if goes_on else _one_pass(state, names)
    result["passes"][0]["decisions"][:0] = first
    return result


def _turn_brokers_off(state: State) -> None:
    """Turn the brokers off: asks to save and go on move no units, and would never come to rest."""
    for pool in [each for each in state.pools.values() if each.settings.broker]:
        state.put(replace(pool, settings=replace(pool.settings, broker=False)))


# The name of a holding in the snapshot, if it is not its request's id.
Names = dict[str, str]


def _names(state: State, snapshot: Any) -> Names:
    held = [
        each
        for each in snapshot.get("running") or ()
        if "request" in each and "id" in each and str(each["id"]) not in state.requests
    ]
    found = ((state.allocation_of(str(each["request"])), str(each.get("id"))) for each in held)
    return {allocation.id: name for allocation, name in found if allocation is not None}


def _claim(state: State, asked: Asked, names: Names) -> dict[str, Any]:
    """Make a claim before the first pass, as a server does, and show what it did or why it was
    refused.
    """
    told: dict[str, Any] = {"do": "claim", "nodes": list(asked.nodes), "for": asked.claimant}
    mark = state.mark()
    try:
        done = claims.claim(state, asked.nodes, asked.claimant, state.now)
    except (Conflict, NotFound) as error:
        state.undo(mark)
        code = error.code if isinstance(error, Conflict) else "not_found"
        return {**told, "victims": [], "refused": {"code": code, "text": str(error)}}
    victims = [_called(state, each, names) for each in done.victims]
    return {**told, "victims": victims, "refused": None}


def _called(state: State, allocation_id: str, names: Names) -> str:
    return names.get(allocation_id, state.allocations[allocation_id].request_id)


def _one_pass(state: State, names: Names) -> dict[str, Any]:
    shown = [_pass(state, names)]
    plan = decide_at_rest(state)
    return _result(shown, at_rest=plan is None, next_timer=state.timers.next())


def decide_at_rest(state: State) -> Plan | None:
    """The next pass at the same instant; None if it would change nothing."""
    with what_if(state):
        plan = decide(state, state.now)
    return plan if plan.changed else None


def on_until_rest(state: State, horizon: object = None) -> dict[str, Any]:
    """Run passes on a state until rest, up to the horizon."""
    state.eager = True
    _turn_brokers_off(state)
    last = state.now + (0 if horizon is None else parse_duration(horizon, "horizon"))
    return _until_rest(state, last, {})


def _until_rest(state: State, horizon: int, names: Names) -> dict[str, Any]:
    passes: list[dict[str, Any]] = []
    seen = {_shape(state)}
    _keep_hearing(state, horizon)
    while len(passes) < bounds.PASSES_MAX:
        before = state.mark()
        shown = _pass(state, names)
        stopped = stop_victims(state)
        if not passes or state.mark().written != before.written:
            passes.append(shown)
        # A report alone, such as that work is above its limit, changes nothing.
        if stopped or state.mark().log != before.log:
            if (shape := _shape(state)) in seen:
                return _result(passes, at_rest=False, next_timer=state.timers.next(), loop=True)
            seen.add(shape)
            state.drain()
            continue
        state.drain()
        later = _next_instant(state)
        if later is None or later > horizon:
            if _waits(shown) != _waits(passes[-1]):  # why they wait in the end
                passes.append(shown)
            return _result(passes, at_rest=True, next_timer=later)
        state.now = later
        seen.clear()
        _end_by_walltime(state)
    return _result(passes, at_rest=False, next_timer=state.timers.next())


def _waits(shown: dict[str, Any]) -> list[Any]:
    return [each for each in shown["decisions"] if each["do"] == "wait"]


def _result(
    passes: list[dict[str, Any]], *, at_rest: bool, next_timer: int | None, loop: bool = False
) -> dict[str, Any]:
    return {
        "passes": passes,
        "at_rest": at_rest,
        "loop": loop,
        "next_timer": seconds(next_timer),
    }


def _pass(state: State, names: Names) -> dict[str, Any]:
    plan = decide(state, state.now)
    shown = [_decision(state, each, names) for each in plan.decisions]
    waiting = sorted(state.waiting(), key=lambda each: each.age)
    shown += [_wait(state, request, names) for request in waiting]
    return {"now": seconds(state.now), "decisions": shown}


def _reject(state: State, snapshot: Any) -> list[Rejection]:
    """Reject, before the first pass, requests that no pool can ever grant, as on submission.

    A request that a server has already accepted has its place in the order of submissions: it is
    paused.
    """
    accepted = {
        str(each.get("id"))
        for each in snapshot.get("requests") or ()
        if "submitted_index" in each or each.get("attempt", 1) != 1 or each.get("suspended")
    }
    rejections = []
    for request in [each for each in state.waiting() if paused(state, each)]:
        if request.id in accepted:
            continue
        reason = rejection(state, request)
        endings.finish(state, request, RequestStatus.REJECTED, reason)
        rejections.append(Rejection(request.id, reason))
    return rejections


def _decision(
    state: State, decision: Grant | Preemption | Rejection, names: Names
) -> dict[str, Any]:
    if isinstance(decision, Grant):
        pool = state.pools[decision.pool_id].name
        members = state.allocations[decision.allocation_id].members
        nodes = [state.nodes[each.node_id].name for each in members]
        grant = {"do": "grant", "request": decision.request_id, "pool": pool, "nodes": nodes}
        return {**grant, "earmarked": decision.earmarked}
    if isinstance(decision, Preemption):
        return {
            "do": "preempt",
            "beneficiary": decision.beneficiary_id,
            "victims": [_called(state, each, names) for each in decision.victims],
            "pool": state.pools[decision.pool_id].name,
            "cost": decision.cost,
            **_candidates(state, state.ledgers[decision.pool_id], decision.weighed, names),
            "reason": decision.reason.to_dict(),
        }
    return {"do": "reject", "request": decision.request_id, "reason": decision.reason.to_dict()}


def _wait(state: State, request: Request, names: Names) -> dict[str, Any]:
    """The reason of a waiter and, in the first of its pools that decides by price, the candidates
    that were weighed.
    """
    reason = waiting_reason(state, request)
    shown: dict[str, Any] = {"do": "wait", "request": request.id, "reason": reason.to_dict()}
    for policy in state.places(request.id):
        if by_price(ledger := state.ledgers[policy.pool_id]):
            weighed = candidates(state, request, policy, reason)
            return shown | _candidates(state, ledger, weighed, names)
    return shown


def _candidates(
    state: State, ledger: PoolLedger, weighed: Iterable[dict[str, Any]], names: Names
) -> dict[str, Any]:
    """The candidates of a waiter, by their names in the snapshot; empty if price does not
    decide.
    """
    if not by_price(ledger):
        return {}
    return {"candidates": [{**each, "id": _called(state, each["id"], names)} for each in weighed]}


def stop_victims(state: State) -> bool:
    """Stop every allocation that was asked to stop; whether there was any."""
    leaving = [each for each in state.allocations.values() if each.live and each.leaving]
    for allocation in sorted(leaving, key=lambda each: each.index):
        _stop(state, allocation)
    return bool(leaving)


def _stop(state: State, allocation: Allocation) -> None:
    """Save the allocation if it was asked to save itself, then end every task of it."""
    if allocation.state is AllocationState.CHECKPOINTING:
        for task in range(max(len(allocation.members), 1)):
            current = state.allocations[allocation.id]
            hint = 0 if current.stop_progress is None else current.stop_progress.hint
            stopping.save(state, current, task, f"plan.{allocation.id}", 0, hint=hint)
    request = state.requests[allocation.request_id]
    if request.work is None:
        allocation = state.allocations[allocation.id]
        saved = allocation.stop_progress is not None and allocation.stop_progress.saved
        endings.stopped(state, request, allocation, saved=saved)
        return
    for member in allocation.members:
        current = state.allocations[allocation.id]
        if current.members[member.task].phase is not Phase.ENDED:
            reports.ended(state, current, member.task, 128 + signal.SIGTERM, "stopped")


def _keep_hearing(state: State, horizon: int) -> None:
    """Keep live nodes alive until the horizon: only nodes that were already silent go down."""
    for node in state.nodes.values():
        if node.state not in (NodeState.DEGRADED, NodeState.DOWN):
            state.beats[node.id] = max(state.beats.get(node.id, 0), horizon)


def _next_instant(state: State) -> int | None:
    ends = [end for each in _running(state) if (end := each.ends_at) is not None]
    timer = state.timers.next()
    following = min([*ends, *([] if timer is None else [timer])], default=None)
    return None if following is None else max(following, state.now)  # overdue is due now


def _end_by_walltime(state: State) -> None:
    for allocation in _running(state):
        if allocation.ends_at is not None and allocation.ends_at <= state.now:
            request = state.requests[allocation.request_id]
            endings.finish(state, request, RequestStatus.RELEASED, None)


def _running(state: State) -> list[Allocation]:
    return [each for each in state.allocations.values() if each.live and not each.leaving]


def _shape(state: State) -> tuple[Any, ...]:
    """A state without its counters: what is held where in which order, what waits, and what is
    promised.
    """
    held = sorted(
        (each.index, each.request_id, each.pool_id, each.state, each.footprint)
        for each in _all(state)
    )
    waiting = sorted(
        (
            each.id,
            (each.earmark and (each.earmark.pool_id, each.earmark.footprint)) or (),
            each.not_before,
            # A forecast start may come nearer from pass to pass; that is no loop.
            (each.withhold and (each.withhold.start or 0, each.withhold.footprint)) or (),
        )
        for each in state.waiting()
    )
    return (tuple(each[1:] for each in held), tuple(waiting))


def _all(state: State) -> list[Allocation]:
    return [each for each in state.allocations.values() if each.live]

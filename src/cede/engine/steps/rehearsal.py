"""Rehearses a pass before it is kept: its victims stop and come back, on the real state, and all of
that is undone.

What a pass does is right for each waiter alone. Together its stops and promises may come to
nothing: a victim returns before the owner of a promise, or finds room again; a waiter takes from
the owner in the moment it starts. The rehearsal sees that with the rules themselves instead of
foreseeing each case, and the pass is then made again without what came to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cede.engine.ledger.ledger import known_by
from cede.engine.lifecycle import endings
from cede.engine.state.state import State
from cede.engine.state.trial import what_if
from cede.model import bounds
from cede.model.allocation import Allocation
from cede.model.plan import ANY, Barred, Plan

Decide = Callable[[State], object]


def regrets(state: State, plan: Plan, decide: Decide) -> set[Barred]:
    """Find the pairs of a waiter and a holder that come to nothing once the victims of a pass have
    stopped and wait again. `decide` decides on the state as it is then.
    """
    stopped = [each for each in plan.stopped if _may_be_regretted(state, state.allocations[each])]
    if not stopped or _leaving(state) > bounds.REHEARSED_MAX:
        return set()
    takings = {each: state.allocations[each] for each in stopped}
    kinds = {
        each: known_by(state.ledgers[victim.pool_id].holdings[each])
        for each, victim in takings.items()
    }
    owners = [e for each in plan.promised.values() for e in each if state.requests[e].earmark]
    found: set[Barred] = set()
    with what_if(state), _fresh_shares(state):
        _play(state, stopped, decide)
        for each, victim in takings.items():
            counted = state.pools[victim.pool_id].nodes is None
            if counted and _has_room(state, victim.request_id, victim.pool_id):
                found.add((ANY, each))
            if victim.taken_for is not None and not _has_room(state, victim.taken_for):
                found.add((victim.taken_for, kinds[each]))
        stopped_for = {each.taken_for for each in takings.values()}
        for owner in owners:
            if owner not in stopped_for and not _has_room(state, owner):
                found.add((owner, ANY))
    return found


def _may_be_regretted(state: State, victim: Allocation) -> bool:
    """Whether a holder is still a victim; where only the capacity of victims counts it must stop,
    whatever is free.
    """
    return victim.leaving and state.pools[victim.pool_id].settings.count_free


def _leaving(state: State) -> int:
    """The number of victims that come back, of this pass and those before it."""
    return sum(len(line) for each in state.ledgers.values() for line in each.departing.values())


def _play(state: State, stopped: list[str], decide: Decide) -> None:
    """Stop all victims at once and decide; a few times, as that may make new victims."""
    leaving = dict.fromkeys(stopped)
    for _ in range(bounds.REHEARSED_PASSES):
        for ledger in state.ledgers.values():
            leaving |= {each: None for line in ledger.departing.values() for _, each in line}
        if not leaving:
            return
        for each in leaving:
            victim = state.allocations[each]
            endings.stopped(state, state.requests[victim.request_id], victim)
        decide(state)
        leaving = {}


@contextmanager
def _fresh_shares(state: State) -> Iterator[None]:
    """A context in which each pass publishes fair shares: victims stop later than now."""
    before, state.eager = state.eager, True
    try:
        yield
    finally:
        state.eager = before


def _has_room(state: State, request_id: str, pool_id: str | None = None) -> bool:
    """Whether a request runs or is promised room, in that pool if one is given."""
    request, held = state.requests[request_id], state.allocation_of(request_id)
    if held is not None:
        return not held.leaving and pool_id in (None, held.pool_id)
    return request.earmark is not None and pool_id in (None, request.earmark.pool_id)

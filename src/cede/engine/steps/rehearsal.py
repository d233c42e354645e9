"""Rehearses a pass before it is kept: its victims stop and come back, on the real state, and all of
that is undone.

What a pass does is right for each waiter alone. Together its stops and promises may come to
nothing: a victim returns before the owner of a promise, or finds room again; a waiter takes from
the owner in the moment it starts. The rehearsal sees that with the rules themselves instead of
foreseeing each case, and the pass is then made again without what came to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from cede.engine.ledger.account import fits, free_to_promise, rights_if_granted
from cede.engine.ledger.ledger import PoolLedger, known_by
from cede.engine.lifecycle import endings
from cede.engine.queue.cursor import streams
from cede.engine.state.state import State
from cede.engine.state.trial import what_if
from cede.model import bounds
from cede.model.amounts import add_to
from cede.model.plan import ANY, Barred, Plan, Refused
from cede.model.settings import Rank

Decide = Callable[[State], Plan]


def regrets(state: State, plan: Plan, decide: Decide) -> dict[Barred, Refused]:
    """Find the pairs of a waiter and a holder that came to nothing in a pass, or will once its
    victims have stopped and wait again. `decide` decides on the state as it is then.
    """
    return _undone_in_vain(state, plan) or _rehearse(state, plan, decide)


def _undone_in_vain(state: State, plan: Plan) -> dict[Barred, Refused]:
    """Find the waiters for which a grant of the pass was undone and which have nothing after all,
    while a request that does not stand above the granted one got room.
    """
    found: dict[Barred, Refused] = {}
    for each in plan.undone.values():
        if _has_room(state, each.request_id) or _has_room(state, each.waiter_id):
            continue
        ledger = state.ledgers[each.pool_id]
        new = [held for held in ledger.holdings.values() if held.index > plan.began]
        if any(ledger.standing_of(held.id) <= each.standing for held in new):
            instead = _served(state, each.waiter_id, each.pool_id, plan.began)
            found[each.waiter_id, each.kind] = Refused(each.waiter_id, each.pool_id, instead)
    return found


def _rehearse(state: State, plan: Plan, decide: Decide) -> dict[Barred, Refused]:
    new, earlier = len(plan.stopped), returning(state) - len(plan.stopped)
    everybody = earlier <= max(new, bounds.REHEARSED_ALONG)
    if new > bounds.REHEARSED_MAX or (not new and (not everybody or earlier <= 0)):
        return {}
    victims = map(state.allocations.__getitem__, plan.stopped)
    stopped = [each.id for each in victims if each.leaving and _rehearsed(state, each.pool_id)]
    owners = _owners(state, plan)
    if not stopped and not owners:
        return {}
    if _follows_order(state, plan):
        return {}
    takings = {each: state.allocations[each] for each in stopped}
    kinds = {
        each: known_by(state.ledgers[victim.pool_id].holdings[each])
        for each, victim in takings.items()
    }
    found: dict[Barred, tuple[str, str]] = {}
    began = state.index
    with what_if(state):
        play(state, stopped, decide, everybody=everybody)
        for each, victim in takings.items():
            waiter = victim.taken_for
            counted = state.pools[victim.pool_id].nodes is None
            if counted and _has_room(state, victim.request_id, victim.pool_id):
                found[ANY, each] = (waiter or ANY, victim.pool_id)
            if waiter is not None and not _has_room(state, waiter):
                found[waiter, kinds[each]] = (waiter, victim.pool_id)
        stopped_for = {each.taken_for for each in takings.values()}
        for owner, pool_id in owners.items():
            if owner not in stopped_for and not _has_room(state, owner):
                found[owner, ANY] = (owner, pool_id)
        return {each: Refused(*whom, _served(state, *whom, began)) for each, whom in found.items()}


def _owners(state: State, plan: Plan) -> dict[str, str]:
    """The pools of the owners whose promises are looked at: those of this pass, and those that a
    waiter of a higher class of their own policy would take in the moment of the grant.
    """
    owners: dict[str, str] = {}
    for pool_id in filter(partial(_rehearsed, state), plan.promised):
        marks = state.ledgers[pool_id].earmarks
        owners |= {each: pool_id for each in plan.promised[pool_id] if each in marks}
    for pool_id, ledger in state.ledgers.items():
        by_class = ledger.pool.settings.rank is Rank.CLASS
        if not ledger.earmarks or not by_class or not _rehearsed(state, pool_id):
            continue
        highest: dict[str, int] = {}
        for key, queue in ledger.queues.items():
            if queue:
                highest[key.policy_id] = max(highest.get(key.policy_id, 0), key.rank)
        for mark in ledger.earmarks.values():
            if highest.get(mark.policy_id, 0) > mark.rank:
                owners[mark.id] = pool_id
    return owners


def _served(state: State, waiter: str, pool_id: str, began: int) -> tuple[str, ...]:
    """Other requests that got room in the waiter's pool since then."""
    new = [each for each in state.ledgers[pool_id].holdings.values() if each.index > began]
    names = [each.id if each.earmark else state.allocations[each.id].request_id for each in new]
    return tuple(each for each in names if each != waiter)


def _follows_order(state: State, plan: Plan) -> bool:
    """Whether the order of standing alone shows that nothing of a pass comes to nothing, which most
    passes need no rehearsal for.
    """
    touched = {*plan.promised, *(each.holder.pool_id for each in plan.stopped.values())}
    return not state.several and all(
        _is_in_order(state, ledger)
        for pool_id, ledger in state.ledgers.items()
        if ledger.departing or pool_id in touched
    )


def _is_in_order(state: State, ledger: PoolLedger) -> bool:
    """Whether no waiter stands above a promise, and no victim that comes back does, or finds room
    or enough below it. With no false positives.
    """
    if not ledger.keeps_order or ledger.starves or not ledger.earmarks:
        return False
    owed = (key for key, owners in ledger.owed.items() if len(owners))
    lowest = min(ledger.standing(rank, rights) for _, rank, rights in owed)
    if any(stream.standing > lowest for stream in streams(ledger)):
        return False
    for kind, _ in ledger.departing:
        policy_id, rank, preemptible, pairs = kind
        amounts = dict(pairs)
        rights = rights_if_granted(ledger, policy_id, amounts, preemptible)
        back = ledger.standing(rank, rights)
        reach = free_to_promise(ledger)
        add_to(reach, ledger.takeable_below(back))
        elsewhere = len(state.policies_of(ledger.policies[policy_id].subject)) > 1
        if back > lowest or elsewhere or fits(amounts, reach):
            return False
    return True


def _rehearsed(state: State, pool_id: str) -> bool:
    """Whether a rehearsal says anything of a pool: where only the capacity of victims counts they
    must stop, whatever is free.
    """
    return state.pools[pool_id].settings.count_free


def returning(state: State) -> int:
    """The number of victims that come back, of this pass and those before it."""
    return sum(len(line) for each in state.ledgers.values() for line in each.departing.values())


def play(state: State, stopped: Iterable[str], decide: Decide, *, everybody: bool = True) -> None:
    """Stop these victims at once, and with `everybody` all others that come back, and decide; a few
    times, as that may make new victims.
    """
    with _fresh_shares(state):
        for _ in range(bounds.REHEARSED_PASSES):
            leaving = dict.fromkeys(stopped)
            for ledger in state.ledgers.values() if everybody else ():
                leaving |= {each: None for line in ledger.departing.values() for _, each in line}
            if not leaving:
                return
            for each in leaving:
                victim = state.allocations[each]
                endings.stopped(state, state.requests[victim.request_id], victim)
            stopped = [each for each in decide(state).stopped if state.allocations[each].leaving]


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

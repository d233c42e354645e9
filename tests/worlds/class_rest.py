"""Nobody rests while it could start, or while a set of victims exists: found by trying all of
them.
"""

from __future__ import annotations

from itertools import combinations
from math import inf

from cede.engine.rights.standing import IN_SHARE, LOWEST
from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.lifecycle import AllocationState
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.settings import Patience
from cede.model.stopping import Checkpoint

from . import amount_checks
from .checks import (
    Broken,
    both,
    claims,
    held_now,
    limits_ok,
    own_room_ok,
    promised,
    rights_then,
    staying,
    usage,
)
from .class_checks import MINUTE, Classes
from .lending import check_lending
from .tried import comes_to_nothing


def check_class_state(state: State, pool: Pool) -> None:
    now = Classes(state, pool)
    check_lending(now)
    for request in list(state.waiting()):
        for policy in state.places(request.id):
            if policy.pool_id == pool.id and request.earmark is None:
                _check_rest(now, request, policy)


def _check_rest(now: Classes, request: Request, policy: Policy) -> None:
    """Nothing that fits is left waiting (L2), nor while others could be made to yield (L3)."""
    state, pool = now.state, now.pool
    if not own_room_ok(state, request, policy):
        return
    withheld = any(each.withhold for each in state.waiting() if each.id != request.id)
    beside = promised(state, pool.id)
    used, held = both(staying(state, pool.id), beside), held_now(state, pool.id)
    held = held if pool.nodes is None else both(held, beside)
    for _, reaches in now.levels(request, policy):
        fits = any(
            now.fits(request, each, used) and now.fits(request, each, held) for each in reaches
        )
        if fits and limits_ok(state, request, policy, (), "held") and not withheld:
            raise Broken(f"L2 {request.id} fits pool {pool.name} and waits")
    if withheld or any(claims(state, each.pool_id) for each in state.places(request.id)):
        return
    if pool.settings.patience is Patience.STARVATION:
        return  # the clocks decide, and who starves is checked where shares are
    if legal := legal_set(now, request, policy, lasting=True):
        raise Broken(f"L3 {request.id} could take {legal}, and waits")
    if legal := _set_by_amounts(now, request, policy):
        raise Broken(f"L3 {request.id} could take {legal} by amounts, and waits")


def legal_set(
    now: Classes, waiter: Request, policy: Policy, *, paid: bool = True, lasting: bool = False
) -> list[str]:
    """A set of victims that would do, by trying all of them; unless it is to be `paid`, also one
    that costs too much, or leaves no sooner than others do by themselves. If it is to be
    `lasting`, none of them would come back above the waiter, and the waiter would get their room.
    """
    most = now.pool.settings.max_victims or len(now.live)
    holders = [each for each in now.live if not now.shielded(each)]
    if paid and _starts_soon(now, waiter, policy, holders):
        return []
    for count in range(1, most + 1):
        for some in combinations(holders, count):
            if paid and not now.cost(some) < now.value(waiter):
                continue
            gone = {each.id for each in some}
            for rights, reaches in now.levels(waiter, policy, gone):
                mine = now.standing(now.rank(policy, waiter), rights)
                if any(now.forbidden(waiter, policy, mine, each) for each in some):
                    continue
                if lasting and any(_comes_back_above(now, each, gone, mine) for each in some):
                    continue
                if not now.is_needed(waiter, policy, gone, mine, reaches):
                    continue
                if not (lasting and comes_to_nothing(now.state, waiter.id, gone)):
                    return sorted(gone)
    return []


def _comes_back_above(
    now: Classes, victim: Allocation, gone: set[str], mine: tuple[int, int]
) -> bool:
    """Whether somebody who is stopped together with others would then stand above the waiter: by
    what the others leave of its share. Where home is a place nothing is known before it sits.
    """
    if now.by_place:
        return False
    request, policy = now.state.requests[victim.request_id], now.state.policies[victim.policy_id]
    rights = rights_then(now.state, request, policy, gone)
    return now.standing(now.rank(policy, request), rights) > mine


def _set_by_amounts(now: Classes, waiter: Request, policy: Policy) -> list[str]:
    """The same by amounts, where there is none by standing."""
    state, most = now.state, now.pool.settings.max_victims
    if not amount_checks.is_owner(state, waiter, policy):
        return []
    if legal_set(now, waiter, policy, paid=False):
        return []
    holders = [
        each
        for each in now.live
        if not now.shielded(each) and not now.in_one_band(waiter, policy, each)
    ]
    if _starts_soon(now, waiter, policy, holders):
        return []
    reaches = now.reaches(waiter, policy, IN_SHARE)

    def enough(gone: set[str]) -> bool:
        return now.is_enough(waiter, policy, gone, LOWEST, reaches)

    sets = amount_checks.sets(state, waiter, policy, enough, holders, most)
    paid = (
        each for each in sets if now.cost(state.allocations[e] for e in each) < now.value(waiter)
    )
    return next((each for each in paid if not comes_to_nothing(state, waiter.id, each)), [])


def _starts_soon(now: Classes, waiter: Request, policy: Policy, holders: list[Allocation]) -> bool:
    """Whether walltimes let a waiter start as soon as stopping others would."""
    if not now.pool.settings.wait_first or not holders:
        return False
    soon = _starts_at(now, waiter, policy)
    return soon <= now.state.now + max(_stop_progress(now, each) for each in holders)


def _stop_progress(now: Classes, each: Allocation) -> int:
    saves = now.state.requests[each.request_id].stop_policy.checkpoint is Checkpoint.AUTO
    return (5 * MINUTE if saves else 0) + now.pool.settings.grace


def _starts_at(now: Classes, waiter: Request, policy: Policy) -> float:
    """When walltimes, and those who leave, have made room for a waiter."""
    if now.is_immediate(waiter):
        return inf
    ends = []
    for each in now.live:
        until = each.deadline if each.leaving else None
        known = [at for at in (each.ends_at, until) if at is not None]
        if known and each.state is not AllocationState.LOST:
            ends.append((min(known), each.id))
    gone: set[str] = set()
    for at, holder in sorted(ends):
        gone.add(holder)
        stays = (a for a in now.state.allocations.values() if a.id not in gone)
        used = both(usage(now.state, now.pool.id, stays), promised(now.state, now.pool.id))
        for _, reaches in now.levels(waiter, policy):
            if any(now.fits(waiter, each, used) for each in reaches):
                return max(at, now.state.now)
    return inf

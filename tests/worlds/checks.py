"""What must hold in every state, said once more without the engine's own bookkeeping."""

from __future__ import annotations

from collections.abc import Iterable

from cede.engine import audit
from cede.engine.explain import waiting_reason
from cede.engine.state import State
from cede.model.amounts import UNBOUNDED_WHEN_ABSENT, Amounts, total
from cede.model.lifecycle import AllocationState
from cede.model.policy import Policy
from cede.model.request import Request
from cede.model.settings import Precedence


class Broken(AssertionError):
    """A promise that did not hold."""


def standing(state: State, policy: Policy, in_share: bool) -> tuple[int, int]:
    if state.pools[policy.pool_id].settings.precedence is Precedence.RIGHTS_FIRST:
        return (int(in_share), policy.priority)
    return (policy.priority, int(in_share))


def counting(state: State, pool_id: str) -> set[str]:
    return {
        key
        for policy in state.policies.values()
        if policy.pool_id == pool_id
        for key, amount in policy.reserved.items()
        if amount
    }


def fits_share(state: State, request: Request, policy: Policy, gone: Iterable[str] = ()) -> bool:
    """Whether a waiter would be in share once granted, with `gone` no longer there."""
    ahead = [
        amounts
        for place, amounts in audit.holdings_in_order(state, policy)
        if place[2] not in gone and place[2] != request.id and (request.preemptible or not place[0])
    ]
    summed = total([*ahead, request.amounts])
    return all(
        summed.get(key, 0) <= policy.reserved.get(key, 0) for key in counting(state, policy.pool_id)
    )


def own_room_ok(state: State, request: Request, policy: Policy) -> bool:
    pool = state.pools[policy.pool_id]
    held = [each for each in audit.holdings_in_order(state, policy) if each[0][2] != request.id]
    used = total(amounts for _, amounts in held)
    confined = total(amounts for place, amounts in held if not place[0])
    for key, amount in pool.metered(request.amounts).items():
        if used.get(key, 0) + amount > policy.limit.get(key, pool.capacity.get(key, 0)):
            return False
        if not request.preemptible and confined.get(key, 0) + amount > policy.reserved.get(key, 0):
            return False
    return True


def held_now(state: State, pool_id: str) -> dict[str, int]:
    return total(a.amounts for a in state.allocations.values() if a.live and a.pool_id == pool_id)


def staying(state: State, pool_id: str) -> dict[str, int]:
    return total(
        a.amounts
        for a in state.allocations.values()
        if a.live and a.pool_id == pool_id and not a.leaving
    )


def promised(state: State, pool_id: str) -> dict[str, int]:
    return total(
        r.amounts for r in state.waiting() if r.earmark is not None and r.earmark.pool_id == pool_id
    )


def within(demand: Amounts, used: Amounts, capacity: Amounts) -> bool:
    """Whether a demand fits beside what is used; keys that may be unbounded count if capped."""
    return all(
        used.get(key, 0) + amount <= capacity.get(key, 0)
        for key, amount in demand.items()
        if amount and (key in capacity or key not in UNBOUNDED_WHEN_ABSENT)
    )


def check_taking(state: State, waiter: Request, policy: Policy, victims: list[str]) -> None:
    """S6, S7, S8 for one preemption, judged just before it is carried out."""
    pool = state.pools[policy.pool_id]
    gone = set(victims)
    mine = standing(state, policy, fits_share(state, waiter, policy, gone))
    for victim_id in victims:
        victim = state.allocations[victim_id]
        holder = state.policies[victim.policy_id]
        if not victim.preemptible or victim.state in (
            AllocationState.STOPPING,
            AllocationState.LOST,
        ):
            raise Broken(f"S6 {victim_id} may not be stopped")
        theirs = standing(state, holder, audit.in_share(state, holder)[victim_id])
        own = holder.id == policy.id
        legal = (
            (not waiter.preemptible or (mine > theirs and policy.priority > holder.priority))
            if own
            else mine > theirs
        )
        if not legal:
            raise Broken(f"S7 {waiter.id} {mine} takes {victim_id} {theirs}")
    if not own_room_ok(state, waiter, policy):
        raise Broken(f"S8 {waiter.id} is over its own bound and still takes")

    def enough(taken: set[str]) -> bool:
        stays = total(
            a.amounts
            for a in state.allocations.values()
            if a.live and a.pool_id == pool.id and not a.leaving and a.id not in taken
        )
        uncut = total(
            r.amounts
            for r in state.waiting()
            if r.earmark is not None
            and r.earmark.pool_id == pool.id
            and _earmark_standing(state, r) >= mine
        )
        return within(waiter.amounts, total([stays, uncut]), pool.capacity)

    if not enough(gone):
        raise Broken(f"S8 {victims} are not enough for {waiter.id}")
    for victim_id in victims:
        if enough(gone - {victim_id}) and not _claims(state, pool.id):
            raise Broken(f"S8 {victim_id} was not needed for {waiter.id}")


def _claims(state: State, pool_id: str) -> bool:
    """Whether somebody waits for capacity on its way that nobody was promised."""
    capacity = state.pools[pool_id].capacity
    used = total([staying(state, pool_id), promised(state, pool_id)])
    return any(
        r.withhold or (r.earmark is None and within(r.amounts, used, capacity))
        for r in state.waiting()
    )


def _earmark_standing(state: State, owner: Request) -> tuple[int, int]:
    assert owner.earmark is not None
    policy = state.policies[owner.earmark.policy_id]
    return standing(state, policy, audit.in_share(state, policy)[owner.id])


def check_state(state: State) -> None:
    """Safety by recount; nothing that could run is left idle (L2) or unserved (L3)."""
    broken = audit.check(state)
    if broken:
        raise Broken("; ".join(broken))
    for request in list(state.waiting()):
        reason = waiting_reason(state, request)
        if "?" in reason.text + reason.fix:
            raise Broken(f"L10 the reason of {request.id} is incomplete: {reason}")
        for policy in state.places(request.id):
            if request.earmark is None or request.earmark.pool_id != policy.pool_id:
                _check_idle(state, request, policy)
            elif within(
                request.amounts,
                held_now(state, policy.pool_id),
                state.pools[policy.pool_id].capacity,
            ):
                raise Broken(f"L2 {request.id} owns an earmark, fits, and does not start")


def _check_idle(state: State, request: Request, policy: Policy) -> None:
    pool = state.pools[policy.pool_id]
    if not own_room_ok(state, request, policy):
        return
    used = total([staying(state, pool.id), promised(state, pool.id)])
    withheld = any(r.withhold for r in state.waiting() if r.id != request.id)
    fits_promise = within(request.amounts, used, pool.capacity)
    if (
        fits_promise
        and within(request.amounts, held_now(state, pool.id), pool.capacity)
        and not withheld
    ):
        raise Broken(f"L2 {request.id} fits pool {pool.name} and waits")
    if request.earmark is not None or withheld:
        return
    if any(_claims(state, each.pool_id) for each in state.places(request.id)):
        return
    if not fits_share(state, request, policy):
        return
    mine = standing(state, policy, True)
    kept = total(
        a.amounts
        for a in state.allocations.values()
        if a.live and a.pool_id == pool.id and not a.leaving and not _takeable(state, a.id, mine)
    )
    if within(request.amounts, total([kept, promised(state, pool.id)]), pool.capacity):
        raise Broken(f"L3 {request.id} is in share, could be served in {pool.name}, and waits")


def _takeable(state: State, allocation_id: str, mine: tuple[int, int]) -> bool:
    allocation = state.allocations[allocation_id]
    policy = state.policies[allocation.policy_id]
    if not allocation.preemptible or allocation.state is AllocationState.LOST:
        return False
    return standing(state, policy, audit.in_share(state, policy)[allocation_id]) < mine

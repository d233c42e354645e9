"""No waste in a pass, from the definition: what it grants it does not stop, nobody whom it stops
could have gone on, and nothing is promised to somebody whom a victim would outrank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.amounts import total
from cede.model.lifecycle import AllocationState
from cede.model.plan import Grant, Plan, Preemption
from cede.model.policy import Policy
from cede.model.request import Request
from cede.model.settings import Share

from .checks import (
    Broken,
    above,
    below,
    both,
    earmark_standing,
    one_task,
    promised,
    rights_of,
    rights_then,
    standing,
    staying,
    within,
)
from .class_checks import Classes, is_classed


def check_pass(state: State, plan: Plan) -> None:
    """A pass that has just ended wastes nothing."""
    for problem in wasted(state, plan):
        raise Broken(problem)


def wasted(state: State, plan: Plan) -> Iterator[str]:
    """What a pass that has just ended wastes."""
    takings = [each for each in plan.decisions if isinstance(each, Preemption)]
    granted = {each.allocation_id for each in plan.decisions if isinstance(each, Grant)}
    victims = [
        state.allocations[victim]
        for each in takings
        if each.beneficiary_id is not None
        for victim in each.victims
    ]
    for victim in victims:
        if victim.id in granted:
            yield f"S8 {victim.id} is granted and stopped in one pass"
        elif not state.pools[victim.pool_id].settings.count_free:
            continue
        elif _could_go_on(state, victim):
            yield f"S8 {victim.id} is stopped in vain: what is promised fits beside it"
        else:
            yield from _outranked(state, plan, victim)


def check_in_stead(state: State, owner: Request, policy: Policy, others: list[str]) -> None:
    """S6 and S7 for those who are stopped in a victim's stead: for its beneficiary, or for itself
    as it will be once it is back. Judged just before they are.
    """
    pool = state.pools[policy.pool_id]
    rights = rights_then(state, owner, policy, others)
    if is_classed(pool):
        now = Classes(state, pool)
        mine = now.standing(now.rank(policy, owner), rights)
        if owner.earmark is not None:
            mine = now.of_owner(owner, others)
        for each in others:
            if why := now.forbidden(owner, policy, mine, state.allocations[each]):
                raise Broken(f"{why}, in somebody's stead")
        return
    mine = standing(state, policy, rights)
    if owner.earmark is not None:
        mine = earmark_standing(state, owner)
    for each in others:
        victim = state.allocations[each]
        holder = state.policies[victim.policy_id]
        if not victim.preemptible or victim.leaving or victim.state is AllocationState.LOST:
            raise Broken(f"S6 {each} may not be stopped")
        theirs = standing(state, holder, rights_of(state, holder, each))
        legal = not owner.preemptible if holder.id == policy.id else theirs < mine
        if not legal and pool.settings.share is Share.RESERVED:
            raise Broken(f"S7 {owner.id} {mine} takes {each} {theirs} in somebody's stead")


def _could_go_on(state: State, victim: Allocation, without: str = "") -> bool:
    """Whether all that stays and is promised, but for one owner, fits beside a victim."""
    pool = state.pools[victim.pool_id]
    owners = [each for each in state.waiting() if each.id != without]
    used = both(staying(state, pool.id), promised(state, pool.id, owners))
    if pool.nodes is None:
        room = within(victim.amounts, used.get("", {}), pool.capacity)
    else:
        task = one_task(state.requests[victim.request_id])
        room = all(
            within(total([task] * tasks), used.get(node_id, {}), state.nodes[node_id].amounts)
            for node_id, tasks in victim.footprint
        )
    return room and _limits_leave_it(state, victim, owners)


def _limits_leave_it(state: State, victim: Allocation, owners: list[Request]) -> bool:
    for policy in above(state, state.policies[victim.policy_id]):
        ids = {each.id for each in below(state, policy)}
        stay = [a for a in state.allocations.values() if a.live and not a.leaving]
        held = [a.amounts for a in stay if a.policy_id in ids]
        held += [r.amounts for r in owners if r.earmark is not None and r.earmark.policy_id in ids]
        summed = total([*held, victim.amounts])
        if any(summed.get(key, 0) > limit for key, limit in policy.limit.items()):
            return False
    return True


def _outranked(state: State, plan: Plan, victim: Allocation) -> Iterator[str]:
    """Promises of this pass that are in the way of a victim which would outrank their owners."""
    new = [
        each
        for each in state.waiting()
        if each.earmark is not None
        and each.earmark.pool_id == victim.pool_id
        and each.earmark.index > plan.began
    ]
    above = _above(state, victim)
    for owner in new:
        if above(owner) and _could_go_on(state, victim, owner.id):
            yield f"S28 {owner.id} is promised what {victim.id}, which outranks it, could keep"


def _above(state: State, victim: Allocation) -> Callable[[Request], bool]:
    """Who stands below a victim as it will be once it is back."""
    request, policy = state.requests[victim.request_id], state.policies[victim.policy_id]
    pool = state.pools[victim.pool_id]
    rights = rights_then(state, request, policy)
    if not is_classed(pool):
        mine = standing(state, policy, rights)
        return lambda owner: earmark_standing(state, owner) < mine
    now = Classes(state, pool)
    if now.by_place:
        rights = now.rights[victim.id]
    back = now.standing(now.rank(policy, request), rights)
    return lambda owner: now.of_owner(owner) < back

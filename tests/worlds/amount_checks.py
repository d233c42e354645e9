"""A reserve protects amounts, not pieces: the rule from its definition, on plain sums."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import combinations

from cede.engine.audit import audit
from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.amounts import Amounts, total
from cede.model.lifecycle import AllocationState
from cede.model.policy import Policy
from cede.model.request import Request
from cede.model.settings import Precedence, Share


def decide_by_amounts(state: State, pool_id: str) -> bool:
    """Whether reserves come first in a pool, and are what gives rights."""
    settings = state.pools[pool_id].settings
    homes = any(each.home for each in state.policies.values() if each.pool_id == pool_id)
    first = settings.precedence is Precedence.RIGHTS_FIRST
    return first and settings.share is Share.RESERVED and not homes


def chain(state: State, policy: Policy) -> list[str]:
    """A policy and those above it."""
    found = [policy.id]
    while (parent := state.policies[found[-1]].parent_id) is not None:
        found.append(parent)
    return found


def holds(state: State, policy_id: str, gone: Collection[str] = ()) -> Amounts:
    """What stays of a policy and those below it, and is promised to them."""
    below = {each.id for each in state.policies.values() if policy_id in chain(state, each)}
    stays = [
        each.amounts
        for each in state.allocations.values()
        if each.live and not each.leaving and each.policy_id in below and each.id not in gone
    ]
    owners = [each for each in state.waiting() if each.earmark is not None]
    marks = [e.amounts for e in owners if e.earmark is not None and e.earmark.policy_id in below]
    return total([*stays, *marks])


def covered(state: State, policy_id: str, held: Amounts) -> dict[str, int]:
    """Of each key that counts, how much of a reserve is used."""
    policy = state.policies[policy_id]
    keys = audit.counted_keys(state, state.pools[policy.pool_id])
    return {key: min(policy.reserved.get(key, 0), held.get(key, 0)) for key in keys}


def is_owner(state: State, waiter: Request, policy: Policy) -> bool:
    """Whether a waiter is inside what its policy reserves, with everything that its policy has."""
    if not decide_by_amounts(state, policy.pool_id):
        return False
    keys = audit.counted_keys(state, state.pools[policy.pool_id])
    after = total([holds(state, policy.id), waiter.amounts])
    within = all(after.get(key, 0) <= policy.reserved.get(key, 0) for key in keys)
    return within and any(waiter.amounts.get(key) for key in keys)


def wrong(state: State, waiter: Request, policy: Policy, victims: Collection[str]) -> str:
    """Why a set of victims is not legal by amounts; nothing if it is."""
    if not is_owner(state, waiter, policy):
        return f"{waiter.id} is not inside its reserve"
    mine = chain(state, policy)
    losers: dict[str, None] = {}
    for each in victims:
        holder = state.policies[state.allocations[each].policy_id]
        if policy.id in chain(state, holder):
            return f"{each} is its own policy's"
        keys = audit.counted_keys(state, state.pools[policy.pool_id])
        if not any(state.allocations[each].amounts.get(key) for key in keys):
            return f"{each} holds nothing that is reserved"
        shared = [above for above in chain(state, holder)[1:] if above not in mine]
        losers |= dict.fromkeys([holder.id, *shared])
    for each in losers:
        before = covered(state, each, holds(state, each))
        after = holds(state, each, victims)
        for key, kept in before.items():
            if after.get(key, 0) < kept:
                return f"{each} keeps {after.get(key, 0)} of {kept} {key}"
    return "" if _rises(state, waiter, policy, victims) else "no more of the reserves is covered"


def gave_way(state: State, loser: Request, came: Iterable[tuple[str, Amounts]]) -> bool:
    """Whether what was promised to somebody was taken by amounts the moment it held: an owner of
    another policy came inside its reserve, and the loser's policies keep theirs without it.
    """
    for policy_id, amounts in came:
        mine = state.policies[policy_id]
        if not decide_by_amounts(state, mine.pool_id):
            continue
        keys = audit.counted_keys(state, state.pools[mine.pool_id])
        now = holds(state, mine.id)
        inside = all(now.get(key, 0) <= mine.reserved.get(key, 0) for key in keys)
        for policy in state.places(loser.id):
            theirs = [each for each in chain(state, policy) if each not in chain(state, mine)]
            kept = all(
                holds(state, each).get(key, 0) >= most
                for each in theirs
                for key, most in covered(
                    state, each, total([holds(state, each), loser.amounts])
                ).items()
            )
            here = bool(theirs) and policy.pool_id == mine.pool_id
            if here and inside and kept and any(amounts.get(key) for key in keys):
                return True
    return False


def _rises(state: State, waiter: Request, policy: Policy, victims: Collection[str]) -> bool:
    """Whether more of all reserves is covered: but for the owner's department, and those above it,
    whose teams may have less in all when a gang frees more than is needed.
    """
    others = [
        each.id
        for each in state.policies.values()
        if each.pool_id == policy.pool_id and each.id not in chain(state, policy)[1:]
    ]

    def in_all(gone: Collection[str], more: Amounts) -> int:
        found = 0
        for each in others:
            held = holds(state, each, gone)
            if each == policy.id:
                held = total([held, more])
            found += sum(covered(state, each, held).values())
        return found

    return in_all(victims, waiter.amounts) > in_all((), {})


def sets(
    state: State,
    waiter: Request,
    policy: Policy,
    enough: Callable[[set[str]], bool],
    among: Iterable[Allocation] | None = None,
    most: int = 0,
) -> Iterator[list[str]]:
    """The smallest sets that are legal by amounts and would do, by trying all of them."""
    if not is_owner(state, waiter, policy):
        return
    holders = list(_stoppable(state, policy.pool_id) if among is None else among)
    holders = [each for each in holders if not wrong(state, waiter, policy, [each.id])]
    if not enough({each.id for each in holders}):
        return
    found: list[set[str]] = []
    for count in range(1, (most or len(holders)) + 1):
        for some in combinations([each.id for each in holders], count):
            if any(each <= set(some) for each in found):
                continue
            if enough(set(some)) and not wrong(state, waiter, policy, some):
                found.append(set(some))
                yield list(some)


def _stoppable(state: State, pool_id: str) -> Iterator[Allocation]:
    for each in state.allocations.values():
        here = each.live and each.pool_id == pool_id and each.state is not AllocationState.LOST
        if here and each.preemptible and not each.leaving:
            yield each

"""What must hold in every state, said once more without the engine's own bookkeeping."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations
from math import inf

from cede.engine.audit import audit
from cede.engine.explain.why import waiting_reason
from cede.engine.fair.groups import Group, Held, groups_of
from cede.engine.rights.standing import BORROWED, IN_SHARE
from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.amounts import UNBOUNDED_WHEN_ABSENT, Amounts, total
from cede.model.lifecycle import AllocationState
from cede.model.node import Node
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.settings import Precedence, Rank, Share

from . import amount_checks
from .tried import comes_to_nothing


class Broken(AssertionError):
    """A promise that did not hold."""


def standing(state: State, policy: Policy, rights: int) -> tuple[int, int]:
    settings = state.pools[policy.pool_id].settings
    if settings.rank is Rank.NONE:
        return (rights, 0)
    if settings.precedence is Precedence.RIGHTS_FIRST:
        return (rights, policy.priority)
    return (policy.priority, rights)


def rights_of(state: State, policy: Policy, holding_id: str) -> int:
    return audit.rights(audit.Alive(state), state.pools[policy.pool_id])[holding_id]


def above(state: State, policy: Policy) -> list[Policy]:
    """A policy and its ancestors, from the lowest up."""
    found = [policy]
    while (parent := found[-1].parent_id) is not None:
        found.append(state.policies[parent])
    return found


def below(state: State, policy: Policy) -> list[Policy]:
    return [each for each in state.policies.values() if policy in above(state, each)]


def _covered_below(state: State, policy: Policy, gone: Container[str]) -> list[Amounts]:
    """What fills a reserve before the policy's own: what a share below it covers."""
    pool = state.pools[policy.pool_id]
    bands, rights = (
        audit.bands_in(audit.Alive(state), pool),
        audit.rights(audit.Alive(state), pool, gone),
    )
    return [
        amounts
        for held in below(state, policy)
        for place, amounts in audit.holdings_in_order(audit.Alive(state), held, bands)
        if place[3] not in gone and IN_SHARE - rights[place[3]] < _steps(state, held, policy)
    ]


def _steps(state: State, held: Policy, policy: Policy) -> int:
    return [each.id for each in above(state, held)].index(policy.id)


def rights_then(state: State, request: Request, policy: Policy, gone: Iterable[str] = ()) -> int:
    """How close to home a waiter would be covered once granted, with `gone` no longer there, nor
    who gave its place in the share to somebody else.
    """
    if audit.fair_alone(state, state.pools[policy.pool_id]):
        return IN_SHARE
    gone = {*gone, *(each.id for each in state.allocations.values() if each.yields)}
    keys = audit.counted_keys(state, state.pools[policy.pool_id])
    bands = audit.bands_in(audit.Alive(state), state.pools[policy.pool_id])
    is_fair = state.pools[policy.pool_id].settings.share is Share.FAIR_SHARE
    if not request.preemptible and not is_fair:  # confined to what is reserved, which is the share
        ahead = [
            amounts
            for place, amounts in audit.holdings_in_order(audit.Alive(state), policy, bands)
            if place[3] not in gone and place[3] != request.id and not place[0]
        ]
        summed = total([*ahead, *_covered_below(state, policy, gone), request.amounts])
        fits = all(summed.get(key, 0) <= policy.reserved.get(key, 0) for key in keys)
        return IN_SHARE if fits else BORROWED
    distance = 0
    # Of its own policy non-preemptible work comes before all other.
    band = band_then(state, request, policy) if request.preemptible else inf
    for each in above(state, policy):
        ahead = [
            amounts
            for held in below(state, each)
            for place, amounts in audit.holdings_in_order(audit.Alive(state), held, bands)
            if place[3] not in gone
            and place[3] != request.id
            and not (held is policy is each and place[0] and -place[1] < band)
        ]
        summed = total([*ahead, request.amounts])
        for share in audit.shares_of(state, each):
            if all(summed.get(key, 0) <= share.get(key, 0) for key in keys):
                return IN_SHARE - distance
            distance += 1
    return BORROWED


def band_then(state: State, request: Request, policy: Policy) -> int:
    """How safe a waiter would be inside its task group once granted: less safe ones of its own
    policy come behind it.
    """
    pool = state.pools[policy.pool_id]
    task_group = request.part_of or request.id
    claim = state.ledgers[pool.id].published.claims.get(task_group)
    if claim is None or pool.settings.share is Share.RESERVED:
        return 0
    held = [
        h
        for h in audit.task_groups_in(audit.Alive(state), pool).get(task_group, [])
        if h.id != request.id
    ]
    group = groups_of([*held, Held("", pool.metered(request.amounts))], claim.due, claim.settings)
    return {Group.NON_PREEMPTIBLE: 2, Group.AGGRESSIVELY_PREEMPTIBLE: 1}.get(group[-1], 0)


def own_room_ok(state: State, request: Request, policy: Policy, *, promise: bool = False) -> bool:
    """Whether a waiter's own policy lets it: its limit, which counts those below as well, and for
    non-preemptible work its reserve. To `promise` something, a limit leaves what is on its way out.
    """
    pool = state.pools[policy.pool_id]
    held = [
        each
        for every in below(state, policy)
        for each in audit.holdings_in_order(audit.Alive(state), every, {})
        if each[0][3] != request.id
    ]
    mine = [
        each
        for each in audit.holdings_in_order(audit.Alive(state), policy, {})
        if each[0][3] != request.id
    ]
    gone = {each.id for each in state.allocations.values() if promise and each.leaving}
    used = total(amounts for place, amounts in held if place[3] not in gone)
    confined = total(amounts for place, amounts in mine if not place[0])
    if not request.preemptible and pool.settings.share is Share.RESERVED:
        confined = total([confined, *_covered_below(state, policy, {request.id})])
    for key, amount in pool.metered(request.amounts).items():
        limit = policy.limit.get(key, pool.capacity.get(key, 0))
        # One that is not below capacity is none: the pool itself is in the way, or nothing.
        if limit < pool.capacity.get(key, 0) and used.get(key, 0) + amount > limit:
            return False
        if not request.preemptible and confined.get(key, 0) + amount > policy.reserved.get(key, 0):
            return False
    task_group = request.part_of or request.id
    members = [r for r in state.requests.values() if (r.part_of or r.id) == task_group]
    holding = [
        r.amounts
        for r in members
        if r.id != request.id and (r.earmark is not None or state.allocation_of(r.id) is not None)
    ]
    summed = total([*holding, request.amounts])
    return all(summed.get(key, 0) <= most for key, most in request.terms.limit.items())


def limits_ok(
    state: State,
    request: Request,
    policy: Policy,
    gone: Iterable[str],
    by: str,
    owners: Iterable[Request] | None = None,
) -> bool:
    """Whether the limits above a policy leave room, with `gone` no longer there; counting what is
    `held`, or what stays and is `promised`; to these `owners` only, if given.
    """
    owners = list(state.waiting() if owners is None else owners)
    for each in above(state, policy)[1:]:
        ids = {every.id for every in below(state, each)}
        counted: list[Amounts] = [
            a.amounts
            for a in state.allocations.values()
            if a.live
            and a.policy_id in ids
            and a.id not in gone
            and (by == "held" or not a.leaving)
        ]
        counted += [
            r.amounts
            for r in owners
            if r.earmark is not None and r.earmark.policy_id in ids and r.id != request.id
        ]
        summed = total([*counted, request.amounts])
        wanted = {key: n for key, n in each.limit.items() if key in request.amounts}
        if any(summed.get(key, 0) > limit for key, limit in wanted.items()):
            return False
    return True


# What is used where: by node, or under "" in a pool without nodes.
Usage = dict[str, dict[str, int]]


def usage(state: State, pool_id: str, allocations: Iterable[Allocation]) -> Usage:
    used: Usage = {}
    for each in allocations:
        if not each.live or each.pool_id != pool_id:
            continue
        if not each.members:
            add(used, "", each.amounts)
        for member in each.members:
            add(used, member.node_id, one_task(state.requests[each.request_id]))
    return used


def held_now(state: State, pool_id: str) -> Usage:
    return usage(state, pool_id, state.allocations.values())


def staying(state: State, pool_id: str) -> Usage:
    return usage(state, pool_id, (a for a in state.allocations.values() if not a.leaving))


def promised(state: State, pool_id: str, owners: Iterable[Request] | None = None) -> Usage:
    used: Usage = {}
    for owner in state.waiting() if owners is None else owners:
        if owner.earmark is None or owner.earmark.pool_id != pool_id:
            continue
        if not owner.earmark.footprint:
            add(used, "", owner.amounts)
        for node_id, tasks in owner.earmark.footprint:
            for _ in range(tasks):
                add(used, node_id, one_task(owner))
    return used


def add(used: Usage, where: str, amounts: Amounts) -> None:
    used[where] = total([used.get(where, {}), amounts])


def both(one: Usage, other: Usage) -> Usage:
    return {where: total([one.get(where, {}), other.get(where, {})]) for where in {*one, *other}}


def one_task(request: Request) -> Amounts:
    return {key: amount // request.tasks for key, amount in request.amounts.items()}


def room_for(state: State, request: Request, pool: Pool, used: Usage) -> bool:
    """Whether a demand fits beside what is used; on nodes task by task, tried one after another."""
    if pool.nodes is None:
        return within(request.amounts, used.get("", {}), pool.capacity)
    places = 0
    for node in state.nodes.values():
        if node.pool_id == pool.id and node.usable and suits(request, node):
            here = dict(used.get(node.id, {}))
            most = request.tasks
            if request.shape is not None and request.shape.per_node is not None:
                most = request.shape.per_node
            while most and within(one_task(request), here, node.amounts):
                here = total([here, one_task(request)])
                most, places = most - 1, places + 1
    return places >= request.tasks


def suits(request: Request, node: Node) -> bool:
    wanted = {} if request.shape is None else request.shape.labels
    return all(node.labels.get(name) == text for name, text in wanted.items())


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
    mine = standing(state, policy, rights_then(state, waiter, policy, gone))
    by_amounts = False
    for victim_id in victims:
        victim = state.allocations[victim_id]
        holder = state.policies[victim.policy_id]
        if not victim.preemptible or victim.leaving or victim.state is AllocationState.LOST:
            raise Broken(f"S6 {victim_id} may not be stopped")
        theirs = standing(state, holder, rights_of(state, holder, victim_id))
        own = holder.id == policy.id
        safety = audit.bands_in(audit.Alive(state), pool).get(victim_id, 0)
        less_safe = safety < band_then(state, waiter, policy)
        legal = (not waiter.preemptible or less_safe) if own else mine > theirs
        if not legal:
            if why := amount_checks.wrong(state, waiter, policy, victims):
                raise Broken(f"S7 {waiter.id} {mine} takes {victim_id} {theirs}, and {why}")
            by_amounts = True
    if not own_room_ok(state, waiter, policy, promise=True):
        raise Broken(f"S8 {waiter.id} is over its own bound and still takes")

    def enough(taken: set[str], cuts: bool = not by_amounts) -> bool:
        # Who stays may keep it from the rights by which it would cut a promise.
        then = standing(state, policy, rights_then(state, waiter, policy, taken))
        stays = usage(
            state,
            pool.id,
            (a for a in state.allocations.values() if not a.leaving and a.id not in taken),
        )
        uncut = [
            r
            for r in state.waiting()
            if r.earmark is not None
            and r.earmark.pool_id == pool.id
            and (not cuts or earmark_standing(state, r) >= then)
            and not gives_way(state, r, waiter, policy)
        ]
        return limits_ok(state, waiter, policy, taken, "promised", uncut) and room_for(
            state, waiter, pool, both(stays, promised(state, pool.id, uncut))
        )

    if not enough(gone):
        raise Broken(f"S8 {victims} are not enough for {waiter.id}")
    for victim_id in victims:
        if enough(gone - {victim_id}) and not claims(state, pool.id):
            raise Broken(f"S8 {victim_id} was not needed for {waiter.id}")
    if by_amounts:
        below = {a.id for a in state.allocations.values() if _takeable(state, a.id, mine)}
        own = {each for each in below if state.allocations[each].policy_id == policy.id}
        if enough(below - own if waiter.preemptible else below, cuts=True):
            raise Broken(f"S7 {waiter.id} takes {victims} by amounts, and others are below it")


def gives_way(state: State, owner: Request, waiter: Request, policy: Policy) -> bool:
    """Whether what was promised gives way to a waiter of its owner's policy: preemptible work to
    work that is not, which could take it as soon as it holds. Where fair shares alone decide, it
    waits until then.
    """
    assert owner.earmark is not None
    pool = state.pools[policy.pool_id]
    return (
        not (pool.settings.share is Share.FAIR_SHARE and pool.settings.rank is Rank.NONE)
        and owner.earmark.policy_id == policy.id
        and owner.preemptible
        and not waiter.preemptible
    )


def claims(state: State, pool_id: str) -> bool:
    """Whether somebody waits for capacity on its way that nobody was promised."""
    pool = state.pools[pool_id]
    used = both(staying(state, pool_id), promised(state, pool_id))
    return any(
        r.withhold or (r.earmark is None and room_for(state, r, pool, used))
        for r in state.waiting()
    )


def earmark_standing(state: State, owner: Request) -> tuple[int, int]:
    assert owner.earmark is not None
    policy = state.policies[owner.earmark.policy_id]
    return standing(state, policy, rights_of(state, policy, owner.id))


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
            elif _can_start(state, request, state.pools[policy.pool_id]):
                raise Broken(f"L2 {request.id} owns an earmark, fits, and does not start")


@dataclass(frozen=True)
class Promises:
    """Who was promised capacity and in what standing; and who held anything then."""

    owners: dict[str, tuple[int, int]]
    holders: set[str]


def promises(state: State) -> Promises:
    owners = [each for each in state.waiting() if each.earmark is not None]
    return Promises(
        standings(state, {r.id: r.earmark.policy_id for r in owners if r.earmark is not None}),
        {each.id for each in state.allocations.values() if each.live},
    )


def standings(state: State, holdings: dict[str, str]) -> dict[str, tuple[int, int]]:
    """Of holdings, by id, under these policies; rights are worked out once for all of them."""
    pools = {state.policies[each].pool_id for each in holdings.values()}
    rights = {
        key: n
        for each in pools
        for key, n in audit.rights(audit.Alive(state), state.pools[each]).items()
    }
    return {
        each: standing(state, state.policies[policy_id], rights[each])
        for each, policy_id in holdings.items()
    }


def check_promises(state: State, before: Promises, *, aged: bool) -> None:
    """Nobody is stopped for a waiter that does not start (S8, S28)."""
    lost = list(lost_promises(state, before))
    if not lost:
        return
    live = [a for a in state.allocations.values() if a.live and a.id not in before.holders]
    came = standings(state, {each.id: each.policy_id for each in live})
    there = promises(state).owners
    came |= {owner: each for owner, each in there.items() if owner not in before.owners}
    holds = [(each.policy_id, each.amounts) for each in live]
    owners = [state.requests[each] for each in there.keys() - before.owners.keys()]
    holds += [(each.earmark.policy_id, each.amounts) for each in owners if each.earmark]
    if all(amount_checks.gave_way(state, state.requests[each], holds) for each in lost):
        return
    if all(_was_pushed(state, state.requests[each], live) for each in lost):
        return
    fair = any(each.settings.share is Share.FAIR_SHARE for each in state.pools.values())
    if fair and all(any(_of_others(state, each, came)) for each in lost):
        return  # which other policy or task group may have it is no matter of standing there
    check_lost(state, before, list(came.values()), aged)


def _was_pushed(state: State, owner: Request, live: Iterable[Allocation]) -> bool:
    """Whether work came that may not be stopped and has a share in common with an owner: it fills
    that share first, so the promise may be out of it now.
    """
    mine = {each.id for policy in state.policies_of(owner.subject) for each in above(state, policy)}
    policies = (state.policies[each.policy_id] for each in live if not each.preemptible)
    return any(each.id in mine for policy in policies for each in above(state, policy))


def _of_others(state: State, owner_id: str, came: Iterable[str]) -> Iterator[bool]:
    """Of those who came, whether each is of another policy or task group."""
    owner = state.requests[owner_id]
    mine = (owner.subject, owner.part_of or owner.id)
    for each in came:
        held = state.allocations.get(each)
        other = state.requests[each if held is None else held.request_id]
        yield (other.subject, other.part_of or other.id) != mine


def lost_promises(state: State, before: Promises) -> Iterator[str]:
    for each in before.owners:
        request = state.requests[each]
        if request.waiting and request.earmark is None:
            yield each


def check_lost(state: State, before: Promises, came: list[tuple[int, int]], aged: bool) -> None:
    """Left alone, an owner keeps its promise until it holds; as somebody grows older, unless
    somebody of higher standing came first.
    """
    for owner_id in lost_promises(state, before):
        if not any(each > before.owners[owner_id] for each in came):
            raise Broken(f"S8 {owner_id} was promised capacity and lost it to nobody above it")
        if not aged:
            raise Broken(f"S28 {owner_id} was promised capacity and lost it, left alone")


def _can_start(state: State, owner: Request, pool: Pool) -> bool:
    """Whether what an owner was promised is physically there: on nodes, on its own ones."""
    held = held_now(state, pool.id)
    assert owner.earmark is not None
    if not _limits_held(state, owner, state.policies[owner.earmark.policy_id]):
        return False
    if pool.nodes is None:
        return room_for(state, owner, pool, held)
    for node_id, tasks in owner.earmark.footprint:
        wanted = total([one_task(owner)] * tasks)
        node = state.nodes[node_id]
        if not node.usable or not within(wanted, held.get(node_id, {}), node.amounts):
            return False
    return True


def _limits_held(state: State, owner: Request, policy: Policy) -> bool:
    """Whether every limit has room beside what is really held."""
    for each in above(state, policy):
        ids = {every.id for every in below(state, each)}
        held = [a.amounts for a in state.allocations.values() if a.live and a.policy_id in ids]
        summed = total([*held, owner.amounts])
        if any(summed.get(key, 0) > limit for key, limit in each.limit.items()):
            return False
    return True


def _check_idle(state: State, request: Request, policy: Policy) -> None:
    pool = state.pools[policy.pool_id]
    if not own_room_ok(state, request, policy):
        return
    used = both(staying(state, pool.id), promised(state, pool.id))
    now = both(held_now(state, pool.id), promised(state, pool.id))
    withheld = any(r.withhold for r in state.waiting() if r.id != request.id)
    if pool.nodes is None:
        now = held_now(state, pool.id)
    # On nodes what is promised counts as held here: it may be on its way where this would sit.
    fits = room_for(state, request, pool, used) and room_for(state, request, pool, now)
    fits = fits and limits_ok(state, request, policy, (), "held")
    mine = standing(state, policy, rights_then(state, request, policy))
    if fits and not room_for(state, request, pool, both(used, _kept(state, pool, mine))):
        return
    if fits and not withheld:
        raise Broken(f"L2 {request.id} fits pool {pool.name} and waits")
    if request.earmark is not None or withheld:
        return
    if any(claims(state, each.pool_id) for each in state.places(request.id)):
        return
    rights = rights_then(state, request, policy)
    if rights != IN_SHARE or pool.settings.share is Share.FAIR_SHARE:
        return  # where shares are fair `fair_checks` knows who may take
    mine = standing(state, policy, rights)
    kept = usage(
        state,
        pool.id,
        (
            a
            for a in state.allocations.values()
            if a.live and not a.leaving and not _takeable(state, a.id, mine)
        ),
    )
    takeable = [a.id for a in state.allocations.values() if _takeable(state, a.id, mine)]
    if not limits_ok(state, request, policy, takeable, "promised"):
        return
    if room_for(state, request, pool, both(kept, promised(state, pool.id))):
        in_vain: list[set[str]] = []
        for some in chain.from_iterable(
            combinations(takeable, count) for count in range(1, len(takeable) + 1)
        ):
            if any(each <= set(some) for each in in_vain):
                continue  # it is more than is needed
            above = any(_comes_back_above(state, each, some, mine) for each in some)
            others = _returning(state, pool, some, mine, request)
            if above or not _enough(state, request, policy, some, others):
                continue
            if not comes_to_nothing(state, request.id, some):
                raise Broken(f"L3 {request.id} is in share, could take {some}, and waits")
            in_vain.append(set(some))
        return  # every taking may defeat itself
    for found in amount_checks.sets(
        state, request, policy, partial(_enough, state, request, policy)
    ):
        if not comes_to_nothing(state, request.id, found):
            raise Broken(f"L3 {request.id} could take {found} by amounts, and waits")


def _comes_back_above(
    state: State, allocation_id: str, gone: Iterable[str], mine: tuple[int, int]
) -> bool:
    """Whether somebody who is stopped together with others would then stand above the waiter."""
    victim = state.allocations[allocation_id]
    policy = state.policies[victim.policy_id]
    rights = rights_then(state, state.requests[victim.request_id], policy, gone)
    return standing(state, policy, rights) > mine


def _returning(
    state: State, pool: Pool, gone: Iterable[str], mine: tuple[int, int], waiter: Request
) -> Usage:
    """What others on their way out would have in a counted pool, before a waiter, once they are
    back: they may come from another pool.
    """
    used: Usage = {}
    for each in state.allocations.values():
        victim = state.requests[each.request_id]
        if pool.nodes is not None or not each.leaving or victim.cancelled:
            continue
        for policy in state.policies_of(victim.subject):
            back = standing(state, policy, rights_then(state, victim, policy, gone))
            before = back > mine or (back == mine and victim.age < waiter.age)
            if policy.pool_id == pool.id and before:
                add(used, "", victim.amounts)
    return used


def _kept(state: State, pool: Pool, mine: tuple[int, int]) -> Usage:
    """What is kept in a counted pool for those on their way out who come back above a promise, and
    above this standing.
    """
    used: Usage = {}
    owners = [r for r in state.waiting() if r.earmark is not None and r.earmark.pool_id == pool.id]
    promised_to = [earmark_standing(state, each) for each in owners]
    for each in state.allocations.values():
        victim = state.requests[each.request_id]
        if pool.nodes is not None or each.pool_id != pool.id or not each.leaving:
            continue
        policy = state.policies[each.policy_id]
        back = standing(state, policy, rights_then(state, victim, policy))
        if back > mine and any(back > other for other in promised_to):
            add(used, "", victim.amounts)
    return used


def _enough(
    state: State,
    request: Request,
    policy: Policy,
    gone: Collection[str],
    others: Usage | None = None,
) -> bool:
    """Whether a waiter fits, beside everything promised and what others have, once these are
    gone.
    """
    pool = state.pools[policy.pool_id]
    stay = (a for a in state.allocations.values() if not a.leaving and a.id not in gone)
    used = both(usage(state, pool.id, stay), promised(state, pool.id))
    return limits_ok(state, request, policy, gone, "promised") and room_for(
        state, request, pool, both(used, others or {})
    )


def _takeable(state: State, allocation_id: str, mine: tuple[int, int]) -> bool:
    allocation = state.allocations[allocation_id]
    policy = state.policies[allocation.policy_id]
    if not allocation.live or not allocation.preemptible:
        return False
    if allocation.state is AllocationState.LOST:
        return False
    return standing(state, policy, rights_of(state, policy, allocation_id)) < mine

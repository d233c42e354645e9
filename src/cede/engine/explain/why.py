"""Why each waiter waits and what would change it (law 8, L10): computed when read, from the
committed state.

The reason is found by asking the same questions in the same order as the pass does. What would help
is not guessed: each change is tried on the real engine and taken back.
"""

from __future__ import annotations

from typing import Any

from cede.engine.explain import fair as explain_fair
from cede.engine.explain import price as explain_price
from cede.engine.explain.what_if import changes, claimed_nodes
from cede.engine.ledger.account import (
    Room,
    fits,
    free_now,
    free_to_promise,
    rights_if_granted,
    taken_of_reserve,
)
from cede.engine.ledger.admit import own_limit_broken, told
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.tenants import quota_reason
from cede.engine.nodes.eligible import EligibleNodes
from cede.engine.nodes.placement import place, places_for, suits
from cede.engine.queue.cursor import order
from cede.engine.queue.forecast import earliest_start, end_bound
from cede.engine.queue.view import eligible_nodes, site
from cede.engine.rights.cover import Holding
from cede.engine.rights.standing import BORROWED, IN_SHARE, LOWEST, Standing
from cede.engine.state.state import State
from cede.engine.state.trial import as_of
from cede.engine.steps import checkpoint as brokering
from cede.engine.victims.protection import protected
from cede.model.amounts import Amounts, plus, show, total
from cede.model.durations import seconds
from cede.model.lifecycle import AllocationState
from cede.model.policy import Policy
from cede.model.reason import Code, Reason
from cede.model.request import Request
from cede.model.shape import Footprint, Shape

# Counting a place beyond this would make a reader slow down the writer.
_PLACE_MAX = 10_000
_HOLDERS_SHOWN = 20


def waiting_reason(state: State, request: Request) -> Reason:
    """The reason in the pool where capacity is on its way for it, else in the one it prefers; a
    waiter that its own limit keeps from starting waits nowhere.
    """
    reasons = [reason_in(state, request, policy) for policy in state.places(request.id)]
    reasons = reasons or own_limit_broken(request)
    return next((each for each in reasons if each.code is Code.ON_ITS_WAY), reasons[0])


def reason_in(state: State, request: Request, policy: Policy) -> Reason:
    """Why a waiter does not hold capacity in one pool yet."""
    ledger = state.ledgers[policy.pool_id]
    if request.id in state.delayed:
        left = seconds(request.not_before - state.now)
        return Reason(Code.RETRY_DELAY, {"attempt": request.attempt, "seconds": left})
    if request.earmark is not None and request.earmark.pool_id == policy.pool_id:
        return _on_its_way(state, ledger, request)
    demand = ledger.pool.metered(request.amounts)
    return (
        quota_reason(state, request)
        or _task_group_bound(ledger, request, demand)
        or _own_bound(ledger, policy, request, demand)
        or _bound_above(ledger, policy, demand)
        or _pool_bound(state, ledger, policy, request, demand)
    )


def _on_its_way(state: State, ledger: PoolLedger, request: Request) -> Reason:
    leaving = [h for h in ledger.holdings.values() if h.leaving] if ledger.leaving else []
    mine = [h for h in leaving if state.allocations[h.id].taken_for == request.id]
    victims = [state.allocations[h.id].request_id for h in mine or leaving]
    return Reason(
        Code.ON_ITS_WAY,
        {
            "pool": ledger.pool.name,
            "amounts": show(ledger.pool.metered(request.amounts)),
            "victims": ", ".join(victims[:_HOLDERS_SHOWN]) or "nobody",
        },
    )


def _task_group_bound(ledger: PoolLedger, request: Request, demand: Amounts) -> Reason | None:
    """The limit of a request whose other tasks have used it up."""
    limit = {} if request.part_of is None else request.terms.limit
    held = ledger.task_groups.used.get(request.part_of or request.id, {})
    room = {key: most - held.get(key, 0) for key, most in limit.items()}
    key = _tightest({each: demand[each] for each in demand if each in room}, room)
    if key is None:
        return None
    enough = held.get(key, 0) + demand[key]
    return Reason(Code.REQUEST_LIMIT, {"key": key, "requested": enough, "bound": limit[key]})


def _own_bound(
    ledger: PoolLedger, policy: Policy, request: Request, demand: Amounts
) -> Reason | None:
    """What stops a waiter by itself: its own limit, or its own reserve.

    A limit that is not below capacity is none: then it is the pool that is full.
    """
    capacity = ledger.pool.capacity
    limits = {key: most for key, most in policy.limit.items() if most < capacity.get(key, 0)}
    reserves = {} if request.preemptible else {key: policy.reserved.get(key, 0) for key in capacity}
    for code, bounds, held in (
        (Code.OWN_LIMIT, limits, ledger.used[policy.id]),
        (Code.OWN_RESERVED, reserves, taken_of_reserve(ledger, policy.id)),
    ):
        room = {key: most - held.get(key, 0) for key, most in bounds.items()}
        key = _tightest({each: demand[each] for each in demand if each in room}, room)
        if key is None:
            continue
        enough = held.get(key, 0) + demand[key]
        remedy = f"its limit be raised to {enough}"
        if code is Code.OWN_RESERVED:
            remedy = f"{enough} {key} be reserved"
        if enough > capacity[key]:
            remedy = "it ask for less"
        detail: dict[str, Any] = {"held": held.get(key, 0), "bound": bounds[key]}
        detail |= {"enough": enough, "remedy": remedy}
        return Reason(code, {**_names(ledger, policy, key, demand), **detail})
    return None


def _bound_above(ledger: PoolLedger, policy: Policy, demand: Amounts) -> Reason | None:
    """The limit of a policy above, which those below it have used up."""
    for above in ledger.chains[policy.id][1:]:
        limit, used = ledger.policies[above].limit, ledger.used[above]
        room = {key: most - used.get(key, 0) for key, most in limit.items()}
        key = _tightest({each: demand[each] for each in demand if each in room}, room)
        if key is not None:
            names = _names(ledger, policy, key, demand) | {"above": ledger.policies[above].name}
            return Reason(
                Code.LIMIT_ABOVE, {**names, "held": used.get(key, 0), "bound": limit[key]}
            )
    return None


def _pool_bound(
    state: State, ledger: PoolLedger, policy: Policy, request: Request, demand: Amounts
) -> Reason:
    rights, bound = _as_granted(ledger, request, policy.id, demand)
    free, promisable = free_now(ledger), free_to_promise(ledger, bound)
    if ledger.inventory is not None and (
        reason := node_reason(state, ledger, request, policy, bound)
    ):
        placeless = reason.code in (Code.NO_NODE, Code.NOT_LENT)
        if not placeless or not explain_price.by_price(ledger):
            return reason
        missing = _missing_places(request, reason)
        names = _names(ledger, policy, missing[0], demand) | {"missing": missing[1]}
        return explain_price.would_not_pay(state, request, policy, names) or reason
    if fits(demand, promisable):
        if not fits(demand, free):
            return _on_its_way(state, ledger, request)
        for head_id in ledger.withheld:
            if head_id != request.id:
                passed = state.requests[head_id].bypassed
                detail = {"pool": ledger.pool.name, "owner": head_id, "bypassed": passed}
                return Reason(Code.WITHHELD, detail)
        return Reason(Code.NEXT, {"pool": ledger.pool.name})
    key = _tightest(demand, promisable)
    assert key is not None
    names = _names(ledger, policy, key, demand)
    names |= {"free": max(free[key], 0), "bound": ledger.pool.capacity.get(key, 0)}
    names["missing"] = demand[key] - max(promisable[key], 0)
    if fits(demand, free):
        owners = [each for each in ledger.earmarks if ledger.standing_of(each) >= bound]
        return Reason(Code.EARMARKED, {**names, "owner": ", ".join(owners[:_HOLDERS_SHOWN])})
    return _taking_reason(state, ledger, request, policy, (rights, bound), names)


def node_reason(
    state: State, ledger: PoolLedger, request: Request, policy: Policy, bound: Standing
) -> Reason | None:
    """What nodes have to do with it: too little free in one place, or out of service."""
    inventory, key = ledger.inventory, ledger.queue_of(policy.id, request)
    assert inventory is not None and key.form is not None
    form, shape = key.form, told(request.shape or Shape(request.amounts))
    only = eligible_nodes(ledger, key, BORROWED)[-1]
    view = site(state, ledger, bound, promise=False, own=(request.id,), only=only)
    if place(view, form) is not None:
        return None
    if form.folders and place(view, form._replace(folders=())) is not None:
        return _elsewhere(state, ledger, request)
    out = [
        spot.node
        for spot in inventory.spots.values()
        if not spot.node.usable and suits(spot.node, form)
    ]
    demand = ledger.pool.metered(request.amounts)
    if out and not fits(demand, free_now(ledger)):
        idle = total(
            dict(zip(inventory.keys, inventory.spots[each.id].free, strict=True)) for each in out
        )
        if fits(demand, plus(free_now(ledger), idle)):
            names = ", ".join(f"{n.name} ({n.state})" for n in out[:_HOLDERS_SHOWN])
            return Reason(Code.NODES_OUT, {"pool": ledger.pool.name, "nodes": names})
    if not fits(demand, free_to_promise(ledger, bound)):
        return None
    if not fits(demand, free_now(ledger)):
        coming = site(state, ledger, bound, promise=True, own=(request.id,), only=only)
        if place(coming, form) is not None:
            return None  # it is on its way, which is said below
    own = (request.id, *ledger.withheld)
    beside = site(state, ledger, bound, promise=False, own=own, only=only)
    if ledger.withheld and place(beside, form) is not None:
        return None  # it is withheld, which is said below
    if inventory.claimed and (reason := _claimed_reason(state, ledger, request, policy, bound)):
        return reason
    missing = {"pool": ledger.pool.name, "found": places_for(view, form), **shape}
    if only is not None and (nodes := _not_lent(state, ledger, request, policy, only)):
        return Reason(Code.NOT_LENT, {**missing, "nodes": nodes})
    return Reason(Code.NO_NODE, missing)


def _elsewhere(state: State, ledger: PoolLedger, request: Request) -> Reason:
    """That it would start if it did not wait for nodes that have its checkpoint."""
    inventory, pin, saved = ledger.inventory, request.pin, request.saved
    assert inventory is not None and pin is not None
    having = [s.node for s in inventory.spots.values() if s.node.folder in pin.folders]
    names = ", ".join(f"{each.name} ({each.state})" for each in having[:_HOLDERS_SHOWN])
    then = "it starts when one of them has room"
    if pin.until is not None:
        left = seconds(max(pin.until - state.now, 0))
        then = f"{then}, or elsewhere after {left} s, from what is found there"
    what = "what it may have saved" if saved is None else f"its checkpoint {saved.id}"
    detail = {"pool": ledger.pool.name, "checkpoint": what, "nodes": names or "no node"}
    return Reason(Code.CHECKPOINT_ELSEWHERE, {**detail, "then": then})


def _claimed_reason(
    state: State, ledger: PoolLedger, request: Request, policy: Policy, bound: Standing
) -> Reason | None:
    """That it would start if nodes were not claimed for others; that they are is no secret."""
    inventory, key = ledger.inventory, ledger.queue_of(policy.id, request)
    assert inventory is not None and key.form is not None
    *_, anyones = ledger.homes.eligible(policy.id, BORROWED, key.settled, None, key.form)
    view = site(state, ledger, bound, promise=False, own=(request.id,), only=anyones)
    if place(view, key.form) is None:
        return None
    roomy = {node_id for _, node_id in view.nodes(inventory.room(dict(key.form.amounts)))}
    nodes = [each for each in claimed_nodes(ledger, request, policy) if each.id in roomy]
    names = ", ".join(f"{each.name} (for {each.claimed_by})" for each in nodes[:_HOLDERS_SHOWN])
    return Reason(Code.NODES_CLAIMED, {"pool": ledger.pool.name, "nodes": names})


def _not_lent(
    state: State, ledger: PoolLedger, request: Request, policy: Policy, only: EligibleNodes
) -> str:
    """The nodes on which it would start if they were lent; none if that would not do."""
    inventory, form = ledger.inventory, ledger.queue_of(policy.id, request).form
    assert inventory is not None and form is not None
    unclaimed = {spot.part for spot in inventory.spots.values() if not spot.node.claimed_by}
    theirs = EligibleNodes(inventory.spots, frozenset(unclaimed))
    view = site(state, ledger, LOWEST, promise=False, own=(request.id,), only=theirs)
    if place(view, form) is None:
        return ""
    roomy = [node_id for _, node_id in view.nodes(inventory.room(dict(form.amounts)))]
    names = sorted(inventory.spots[each].node.name for each in roomy if each not in only)
    return ", ".join(names[:_HOLDERS_SHOWN])


def _missing_places(request: Request, reason: Reason) -> tuple[str, int]:
    """A key of a demand for which there is no node, and how much of it has no place."""
    key = max(request.amounts, key=lambda each: (request.amounts[each], each))
    tasks, found = reason.detail["tasks"], reason.detail["found"]
    return key, request.amounts[key] // tasks * (tasks - found)


def _taking_reason(
    state: State,
    ledger: PoolLedger,
    request: Request,
    policy: Policy,
    granted: tuple[int, Standing],
    names: dict[str, Any],
) -> Reason:
    """Why no holder may be stopped: the nearest rule that stands in the way."""
    (rights, _), key = granted, names["key"]
    if ledger.starves and (reason := explain_fair.not_yet(state, ledger, request, policy, names)):
        return reason
    young = _young(state, ledger, policy, granted, key)
    if young is not None:
        settings = ledger.pool.settings
        whole = max(settings.min_run, settings.reclaim_min_run)
        return Reason(Code.MIN_RUN, {**names, "seconds": seconds(whole), "since": seconds(young)})
    if ledger.fair and (reason := explain_fair.cannot_take(state, ledger, request, policy, names)):
        return reason
    if explain_price.by_price(ledger):
        reason = explain_price.cannot_pay(state, request, policy, names)
        if reason is not None:
            return reason
    others = [
        level
        for (level, _, policy_id, _), amounts in ledger.tiers.items()
        if policy_id != policy.id and key in amounts
    ]
    headroom = _headroom(ledger, policy, key)
    if rights == BORROWED and headroom > 0 and BORROWED in others and not ledger.fair:
        return Reason(
            Code.PARTIAL_HEADROOM,
            {**names, "headroom": headroom, "missing": max(names["requested"] - headroom, 0)},
        )
    return Reason(Code.PROTECTED if others else Code.NO_CAPACITY, names)


def _young(
    state: State, ledger: PoolLedger, policy: Policy, granted: tuple[int, Standing], key: str
) -> int | None:
    """When the first holder was granted that only its first seconds protect from this waiter."""
    settings = ledger.pool.settings
    if not settings.min_run and not settings.reclaim_min_run:
        return None
    rights, bound = granted
    holders = [h for h in ledger.holdings.values() if h.takeable and key in h.amounts]
    young = [
        state.allocations[h.id].allocated_at
        for h in holders
        if h.policy_id != policy.id
        and ledger.standing_of(h.id) < bound
        and protected(state, h, ledger.rights(h.id), rights)
    ]
    return min(young, default=None)


def _headroom(ledger: PoolLedger, policy: Policy, key: str) -> int:
    return policy.reserved.get(key, 0) - ledger.used[policy.id].get(key, 0)


def _tightest(demand: Amounts, room: Room) -> str | None:
    """The key of which the most is missing."""
    missing = {key: amount - room[key] for key, amount in demand.items() if amount > room[key]}
    return min(missing, key=lambda key: (-missing[key], key), default=None)


def _names(ledger: PoolLedger, policy: Policy, key: str, demand: Amounts) -> dict[str, Any]:
    return {
        "pool": ledger.pool.name,
        "policy": policy.name,
        "key": key,
        "requested": demand[key],
    }


# The whole story ------------------------------------------------------------------------------


def why(state: State, request_id: str, now: int, *, tried: bool = True) -> dict[str, Any]:
    """Everything there is to say about a request that has not ended.

    Without `tried` no changes are tried out, which is what costs: for whoever asks often.
    """
    with as_of(state, now):
        return _story(state, state.requests[request_id], tried)


def _story(state: State, request: Request, tried: bool) -> dict[str, Any]:
    request_id = request.id
    allocation = state.allocation_of(request_id)
    story: dict[str, Any] = {"request": request_id, "status": str(request.status)}
    story |= {"attempt": request.attempt, "preempted_count": request.preempted_count}
    if request.labels:
        story["labels"] = dict(request.labels)
    if allocation is not None:
        story["pool"] = state.pools[allocation.pool_id].name
        story["reason"] = None if request.reason is None else request.reason.to_public()
        if allocation.taken_for is not None:
            story["taken_for"] = allocation.taken_for
        if allocation.members:
            story["nodes"] = _nodes(state, allocation.footprint)
        asked = allocation.stop_progress
        if asked is not None and allocation.state is AllocationState.CHECKPOINTING:
            left = seconds(max(asked.until - state.now, 0))
            story["saving"] = {"seconds_left": left, "answered": asked.answered}
        return story | brokering.story(state, allocation)
    story["reason"] = waiting_reason(state, request).to_public()
    if request.reason is not None:
        story["last_stopped"] = request.reason.to_public()
    story["pools"] = [
        _pool_story(state, request, policy, tried) for policy in state.places(request_id)
    ]
    return story


def _pool_story(state: State, request: Request, policy: Policy, tried: bool) -> dict[str, Any]:
    ledger = state.ledgers[policy.pool_id]
    demand = ledger.pool.metered(request.amounts)
    start = earliest_start(state, ledger, request)
    reason = reason_in(state, request, policy)
    more: dict[str, Any] = {}
    if ledger.fair:
        more["fairness"] = explain_fair.story(state, ledger, request, policy)
    if explain_price.by_price(ledger):
        more["candidates"] = [
            {**each, "id": state.allocations[each["id"]].request_id}
            for each in explain_price.candidates(state, request, policy, reason)
        ]
    return more | {
        "pool": ledger.pool.name,
        "reason": reason.to_public(),
        "in_share": _as_granted(ledger, request, policy.id, demand)[0] == IN_SHARE,
        "place": _place(state, ledger, request, policy),
        "bypassed": request.bypassed,
        "holders": _holders(state, ledger, policy, demand),
        "changes": list(changes(state, ledger, request, policy, demand)) if tried else None,
        "earliest_start": None if start is None else seconds(max(start.at - state.now, 0)),
    }


def _place(state: State, ledger: PoolLedger, request: Request, policy: Policy) -> int | None:
    """Its place in this pool's queue, from 1; None beyond what is worth counting."""
    if sum(map(len, ledger.queues.values())) > _PLACE_MAX:
        return None
    demand = ledger.pool.metered(request.amounts)
    mine = _order(ledger, request, policy.id, demand)
    before = 0
    for at, queue in ledger.queues.items():
        for other_id in queue:
            other = state.requests[other_id]
            before += _order(ledger, other, at.policy_id, queue.demand(other_id)) < mine
    return before + 1


def _order(ledger: PoolLedger, request: Request, policy_id: str, demand: Amounts) -> Any:
    _, standing = _as_granted(ledger, request, policy_id, demand)
    satisfaction = ledger.satisfaction(ledger.queue_of(policy_id, request))
    return order(standing, (*request.age, request.id), satisfaction)


def _as_granted(
    ledger: PoolLedger, request: Request, policy_id: str, demand: Amounts
) -> tuple[int, Standing]:
    """The rights and the standing that a waiter would have."""
    key = ledger.queue_of(policy_id, request)
    band = ledger.band(key, demand)
    rights = rights_if_granted(ledger, policy_id, demand, request.preemptible, band)
    return rights, ledger.standing(key.rank, rights)


def _nodes(state: State, footprint: Footprint) -> list[str]:
    return [state.nodes[node_id].name for node_id, _ in footprint[:_HOLDERS_SHOWN]]


def _holders(
    state: State, ledger: PoolLedger, policy: Policy, demand: Amounts
) -> list[dict[str, Any]]:
    """Who holds what this waiter needs, the largest first."""

    def size(holding: Holding) -> tuple[int, int]:
        return (-sum(holding.amounts.get(key, 0) for key in demand), -holding.index)

    useful = [h for h in ledger.holdings.values() if any(key in h.amounts for key in demand)]
    shown = []
    for holding in sorted(useful, key=size)[:_HOLDERS_SHOWN]:
        owner = holding.id if holding.earmark else state.allocations[holding.id].request_id
        end = None if holding.earmark else end_bound(state, state.allocations[holding.id])
        shown.append(
            {
                "request": owner,
                "policy": ledger.policies[holding.policy_id].name,
                "amounts": dict(holding.amounts),
                "in_share": ledger.rights(holding.id) == IN_SHARE,
                "preemptible": holding.preemptible,
                "promised": holding.earmark,
                "leaving": holding.leaving,
                "nodes": _nodes(state, holding.footprint),
                "ends_in": None if end is None else seconds(max(end - state.now, 0)),
                **(
                    explain_fair.of_holder(ledger, holding, policy.id, demand)
                    if ledger.fair
                    else {}
                ),
            }
        )
    return shown

"""Why each waiter waits and what would change it (law 8, L10): computed when read, from the
committed state.

The reason is found by asking the same questions in the same order as the pass does. What would help
is not guessed: each change is tried on the real engine and taken back.
"""

from __future__ import annotations

from typing import Any

from cede.engine import brokering, explain_fair, explain_price
from cede.engine.admit import own_limit_broken, told
from cede.engine.books import Books
from cede.engine.fit import (
    Room,
    fits,
    free_now,
    free_to_promise,
    rights_if_granted,
    taken_of_reserve,
)
from cede.engine.forecast import earliest_start, end_bound
from cede.engine.front import order
from cede.engine.patience import protected
from cede.engine.placement import place, places_for, suits
from cede.engine.reach import Reach
from cede.engine.share import Holding
from cede.engine.site import reach, site
from cede.engine.standing import BORROWED, IN_SHARE, LOWEST, Standing
from cede.engine.state import State
from cede.engine.tenants import quota_reason
from cede.engine.what_if import changes, claimed_nodes
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
    books = state.books[policy.pool_id]
    if request.id in state.delayed:
        left = seconds(request.not_before - state.now)
        return Reason(Code.RETRY_DELAY, {"attempt": request.attempt, "seconds": left})
    if request.earmark is not None and request.earmark.pool_id == policy.pool_id:
        return _on_its_way(state, books, request)
    demand = books.pool.metered(request.amounts)
    return (
        quota_reason(state, request)
        or _family_bound(books, request, demand)
        or _own_bound(books, policy, request, demand)
        or _bound_above(books, policy, demand)
        or _pool_bound(state, books, policy, request, demand)
    )


def _on_its_way(state: State, books: Books, request: Request) -> Reason:
    leaving = [h for h in books.holdings.values() if h.leaving] if books.leaving else []
    mine = [h for h in leaving if state.allocations[h.id].taken_for == request.id]
    victims = [state.allocations[h.id].request_id for h in mine or leaving]
    return Reason(
        Code.ON_ITS_WAY,
        {
            "pool": books.pool.name,
            "amounts": show(books.pool.metered(request.amounts)),
            "victims": ", ".join(victims[:_HOLDERS_SHOWN]) or "nobody",
        },
    )


def _family_bound(books: Books, request: Request, demand: Amounts) -> Reason | None:
    """The limit of a request whose other tasks have used it up."""
    limit = {} if request.part_of is None else request.terms.limit
    held = books.families.used.get(request.part_of or request.id, {})
    room = {key: most - held.get(key, 0) for key, most in limit.items()}
    key = _tightest({each: demand[each] for each in demand if each in room}, room)
    if key is None:
        return None
    enough = held.get(key, 0) + demand[key]
    return Reason(Code.REQUEST_LIMIT, {"key": key, "requested": enough, "bound": limit[key]})


def _own_bound(books: Books, policy: Policy, request: Request, demand: Amounts) -> Reason | None:
    """What stops a waiter by itself: its own limit, or its own reserve.

    A limit that is not below capacity is none: then it is the pool that is full.
    """
    capacity = books.pool.capacity
    limits = {key: most for key, most in policy.limit.items() if most < capacity.get(key, 0)}
    reserves = {} if request.preemptible else {key: policy.reserved.get(key, 0) for key in capacity}
    for code, bounds, held in (
        (Code.OWN_LIMIT, limits, books.used[policy.id]),
        (Code.OWN_RESERVED, reserves, taken_of_reserve(books, policy.id)),
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
        return Reason(code, {**_names(books, policy, key, demand), **detail})
    return None


def _bound_above(books: Books, policy: Policy, demand: Amounts) -> Reason | None:
    """The limit of a policy above, which those below it have used up."""
    for above in books.chains[policy.id][1:]:
        limit, used = books.policies[above].limit, books.used[above]
        room = {key: most - used.get(key, 0) for key, most in limit.items()}
        key = _tightest({each: demand[each] for each in demand if each in room}, room)
        if key is not None:
            names = _names(books, policy, key, demand) | {"above": books.policies[above].name}
            return Reason(
                Code.LIMIT_ABOVE, {**names, "held": used.get(key, 0), "bound": limit[key]}
            )
    return None


def _pool_bound(
    state: State, books: Books, policy: Policy, request: Request, demand: Amounts
) -> Reason:
    rights, bound = _as_granted(books, request, policy.id, demand)
    free, promisable = free_now(books), free_to_promise(books, bound)
    if books.ground is not None and (reason := node_reason(state, books, request, policy, bound)):
        placeless = reason.code in (Code.NO_NODE, Code.NOT_LENT)
        if not placeless or not explain_price.by_price(books):
            return reason
        missing = _missing_places(request, reason)
        names = _names(books, policy, missing[0], demand) | {"missing": missing[1]}
        return explain_price.would_not_pay(state, request, policy, names) or reason
    if fits(demand, promisable):
        if not fits(demand, free):
            return _on_its_way(state, books, request)
        for head_id in books.withheld:
            if head_id != request.id:
                passed = state.requests[head_id].bypassed
                detail = {"pool": books.pool.name, "owner": head_id, "bypassed": passed}
                return Reason(Code.WITHHELD, detail)
        return Reason(Code.NEXT, {"pool": books.pool.name})
    key = _tightest(demand, promisable)
    assert key is not None
    names = _names(books, policy, key, demand)
    names |= {"free": max(free[key], 0), "bound": books.pool.capacity.get(key, 0)}
    names["missing"] = demand[key] - max(promisable[key], 0)
    if fits(demand, free):
        owners = [each for each in books.earmarks if books.standing_of(each) >= bound]
        return Reason(Code.EARMARKED, {**names, "owner": ", ".join(owners[:_HOLDERS_SHOWN])})
    return _taking_reason(state, books, request, policy, (rights, bound), names)


def node_reason(
    state: State, books: Books, request: Request, policy: Policy, bound: Standing
) -> Reason | None:
    """What nodes have to do with it: too little free in one place, or out of service."""
    ground, key = books.ground, books.lane_of(policy.id, request)
    assert ground is not None and key.form is not None
    form, shape = key.form, told(request.shape or Shape(request.amounts))
    only = reach(books, key, BORROWED)[-1]
    view = site(state, books, bound, promise=False, own=(request.id,), only=only)
    if place(view, form) is not None:
        return None
    if form.folders and place(view, form._replace(folders=())) is not None:
        return _elsewhere(state, books, request)
    out = [
        spot.node
        for spot in ground.spots.values()
        if not spot.node.usable and suits(spot.node, form)
    ]
    demand = books.pool.metered(request.amounts)
    if out and not fits(demand, free_now(books)):
        idle = total(
            dict(zip(ground.keys, ground.spots[each.id].free, strict=True)) for each in out
        )
        if fits(demand, plus(free_now(books), idle)):
            names = ", ".join(f"{n.name} ({n.state})" for n in out[:_HOLDERS_SHOWN])
            return Reason(Code.NODES_OUT, {"pool": books.pool.name, "nodes": names})
    if not fits(demand, free_to_promise(books, bound)):
        return None
    if not fits(demand, free_now(books)):
        coming = site(state, books, bound, promise=True, own=(request.id,), only=only)
        if place(coming, form) is not None:
            return None  # it is on its way, which is said below
    own = (request.id, *books.withheld)
    beside = site(state, books, bound, promise=False, own=own, only=only)
    if books.withheld and place(beside, form) is not None:
        return None  # it is withheld, which is said below
    if ground.claimed and (reason := _claimed_reason(state, books, request, policy, bound)):
        return reason
    missing = {"pool": books.pool.name, "found": places_for(view, form), **shape}
    if only is not None and (nodes := _not_lent(state, books, request, policy, only)):
        return Reason(Code.NOT_LENT, {**missing, "nodes": nodes})
    return Reason(Code.NO_NODE, missing)


def _elsewhere(state: State, books: Books, request: Request) -> Reason:
    """That it would start if it did not wait for nodes that have its checkpoint."""
    ground, pin, saved = books.ground, request.pin, request.saved
    assert ground is not None and pin is not None
    having = [s.node for s in ground.spots.values() if s.node.folder in pin.folders]
    names = ", ".join(f"{each.name} ({each.state})" for each in having[:_HOLDERS_SHOWN])
    then = "it starts when one of them has room"
    if pin.until is not None:
        left = seconds(max(pin.until - state.now, 0))
        then = f"{then}, or elsewhere after {left} s, from what is found there"
    what = "what it may have saved" if saved is None else f"its checkpoint {saved.id}"
    detail = {"pool": books.pool.name, "checkpoint": what, "nodes": names or "no node"}
    return Reason(Code.CHECKPOINT_ELSEWHERE, {**detail, "then": then})


def _claimed_reason(
    state: State, books: Books, request: Request, policy: Policy, bound: Standing
) -> Reason | None:
    """That it would start if nodes were not claimed for others; that they are is no secret."""
    ground, key = books.ground, books.lane_of(policy.id, request)
    assert ground is not None and key.form is not None
    *_, anyones = books.homes.reaches(policy.id, BORROWED, key.settled, None, key.form)
    view = site(state, books, bound, promise=False, own=(request.id,), only=anyones)
    if place(view, key.form) is None:
        return None
    roomy = {node_id for _, node_id in view.nodes(ground.room(dict(key.form.amounts)))}
    nodes = [each for each in claimed_nodes(books, request, policy) if each.id in roomy]
    names = ", ".join(f"{each.name} (for {each.claimed_by})" for each in nodes[:_HOLDERS_SHOWN])
    return Reason(Code.NODES_CLAIMED, {"pool": books.pool.name, "nodes": names})


def _not_lent(state: State, books: Books, request: Request, policy: Policy, only: Reach) -> str:
    """The nodes on which it would start if they were lent; none if that would not do."""
    ground, form = books.ground, books.lane_of(policy.id, request).form
    assert ground is not None and form is not None
    unclaimed = {spot.part for spot in ground.spots.values() if not spot.node.claimed_by}
    theirs = Reach(ground.spots, frozenset(unclaimed))
    view = site(state, books, LOWEST, promise=False, own=(request.id,), only=theirs)
    if place(view, form) is None:
        return ""
    roomy = [node_id for _, node_id in view.nodes(ground.room(dict(form.amounts)))]
    names = sorted(ground.spots[each].node.name for each in roomy if each not in only)
    return ", ".join(names[:_HOLDERS_SHOWN])


def _missing_places(request: Request, reason: Reason) -> tuple[str, int]:
    """A key of a demand for which there is no node, and how much of it has no place."""
    key = max(request.amounts, key=lambda each: (request.amounts[each], each))
    tasks, found = reason.detail["tasks"], reason.detail["found"]
    return key, request.amounts[key] // tasks * (tasks - found)


def _taking_reason(
    state: State,
    books: Books,
    request: Request,
    policy: Policy,
    granted: tuple[int, Standing],
    names: dict[str, Any],
) -> Reason:
    """Why no holder may be stopped: the nearest rule that stands in the way."""
    (rights, _), key = granted, names["key"]
    if books.starves and (reason := explain_fair.not_yet(state, books, request, policy, names)):
        return reason
    young = _young(state, books, policy, granted, key)
    if young is not None:
        settings = books.pool.settings
        whole = max(settings.min_run, settings.reclaim_min_run)
        return Reason(Code.MIN_RUN, {**names, "seconds": seconds(whole), "since": seconds(young)})
    if books.fair and (reason := explain_fair.cannot_take(state, books, request, policy, names)):
        return reason
    if explain_price.by_price(books):
        reason = explain_price.cannot_pay(state, request, policy, names)
        if reason is not None:
            return reason
    others = [
        level
        for (level, _, policy_id, _), amounts in books.tiers.items()
        if policy_id != policy.id and key in amounts
    ]
    headroom = _headroom(books, policy, key)
    if rights == BORROWED and headroom > 0 and BORROWED in others and not books.fair:
        return Reason(
            Code.PARTIAL_HEADROOM,
            {**names, "headroom": headroom, "missing": max(names["requested"] - headroom, 0)},
        )
    return Reason(Code.PROTECTED if others else Code.NO_CAPACITY, names)


def _young(
    state: State, books: Books, policy: Policy, granted: tuple[int, Standing], key: str
) -> int | None:
    """When the first holder was granted that only its first seconds protect from this waiter."""
    settings = books.pool.settings
    if not settings.min_run and not settings.reclaim_min_run:
        return None
    rights, bound = granted
    holders = [h for h in books.holdings.values() if h.takeable and key in h.amounts]
    young = [
        state.allocations[h.id].allocated_at
        for h in holders
        if h.policy_id != policy.id
        and books.standing_of(h.id) < bound
        and protected(state, h, books.rights(h.id), rights)
    ]
    return min(young, default=None)


def _headroom(books: Books, policy: Policy, key: str) -> int:
    return policy.reserved.get(key, 0) - books.used[policy.id].get(key, 0)


def _tightest(demand: Amounts, room: Room) -> str | None:
    """The key of which the most is missing."""
    missing = {key: amount - room[key] for key, amount in demand.items() if amount > room[key]}
    return min(missing, key=lambda key: (-missing[key], key), default=None)


def _names(books: Books, policy: Policy, key: str, demand: Amounts) -> dict[str, Any]:
    return {
        "pool": books.pool.name,
        "policy": policy.name,
        "key": key,
        "requested": demand[key],
    }


# The whole story ------------------------------------------------------------------------------


def why(state: State, request_id: str, now: int, *, tried: bool = True) -> dict[str, Any]:
    """Everything there is to say about a request that has not ended.

    Without `tried` no changes are tried out, which is what costs: for whoever asks often.
    """
    state.now = now
    request = state.requests[request_id]
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
        asked = allocation.parting
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
    books = state.books[policy.pool_id]
    demand = books.pool.metered(request.amounts)
    start = earliest_start(state, books, request)
    reason = reason_in(state, request, policy)
    more: dict[str, Any] = {}
    if books.fair:
        more["fairness"] = explain_fair.story(state, books, request, policy)
    if explain_price.by_price(books):
        more["candidates"] = [
            {**each, "id": state.allocations[each["id"]].request_id}
            for each in explain_price.candidates(state, request, policy, reason)
        ]
    return more | {
        "pool": books.pool.name,
        "reason": reason.to_public(),
        "in_share": _as_granted(books, request, policy.id, demand)[0] == IN_SHARE,
        "place": _place(state, books, request, policy),
        "bypassed": request.bypassed,
        "holders": _holders(state, books, policy, demand),
        "changes": list(changes(state, books, request, policy, demand)) if tried else None,
        "earliest_start": None if start is None else seconds(max(start.at - state.now, 0)),
    }


def _place(state: State, books: Books, request: Request, policy: Policy) -> int | None:
    """Its place in this pool's queue, from 1; None beyond what is worth counting."""
    if sum(map(len, books.lanes.values())) > _PLACE_MAX:
        return None
    demand = books.pool.metered(request.amounts)
    mine = _order(books, request, policy.id, demand)
    before = 0
    for at, lane in books.lanes.items():
        for other_id in lane:
            other = state.requests[other_id]
            before += _order(books, other, at.policy_id, lane.demand(other_id)) < mine
    return before + 1


def _order(books: Books, request: Request, policy_id: str, demand: Amounts) -> Any:
    _, standing = _as_granted(books, request, policy_id, demand)
    satisfaction = books.satisfaction(books.lane_of(policy_id, request))
    return order(standing, (*request.age, request.id), satisfaction)


def _as_granted(
    books: Books, request: Request, policy_id: str, demand: Amounts
) -> tuple[int, Standing]:
    """The rights and the standing that a waiter would have."""
    key = books.lane_of(policy_id, request)
    band = books.band(key, demand)
    rights = rights_if_granted(books, policy_id, demand, request.preemptible, band)
    return rights, books.standing(key.rank, rights)


def _nodes(state: State, footprint: Footprint) -> list[str]:
    return [state.nodes[node_id].name for node_id, _ in footprint[:_HOLDERS_SHOWN]]


def _holders(state: State, books: Books, policy: Policy, demand: Amounts) -> list[dict[str, Any]]:
    """Who holds what this waiter needs, the largest first."""

    def size(holding: Holding) -> tuple[int, int]:
        return (-sum(holding.amounts.get(key, 0) for key in demand), -holding.index)

    useful = [h for h in books.holdings.values() if any(key in h.amounts for key in demand)]
    shown = []
    for holding in sorted(useful, key=size)[:_HOLDERS_SHOWN]:
        owner = holding.id if holding.earmark else state.allocations[holding.id].request_id
        end = None if holding.earmark else end_bound(state, state.allocations[holding.id])
        shown.append(
            {
                "request": owner,
                "policy": books.policies[holding.policy_id].name,
                "amounts": dict(holding.amounts),
                "in_share": books.rights(holding.id) == IN_SHARE,
                "preemptible": holding.preemptible,
                "promised": holding.earmark,
                "leaving": holding.leaving,
                "nodes": _nodes(state, holding.footprint),
                "ends_in": None if end is None else seconds(max(end - state.now, 0)),
                **(explain_fair.of_holder(books, holding, policy.id, demand) if books.fair else {}),
            }
        )
    return shown

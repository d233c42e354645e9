"""Why each waiter waits and what would change it (law 8, L10).

The bound in its way is the verdict that the last pass met (`queue.bounds.verdict_on`); nothing here
decides it again. This module puts it into words, with names and numbers as they are now. Remedies
are not guessed: each change is tried on the real engine and taken back.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, takewhile
from operator import le
from typing import Any

from cede.engine.admin.quarantine import unknown
from cede.engine.explain import fair as explain_fair
from cede.engine.explain import price as explain_price
from cede.engine.explain.closest import closest_node
from cede.engine.explain.places import PLACE_MAX, as_granted, in_order, length, order_of
from cede.engine.explain.turns import turn_reason
from cede.engine.explain.what_if import changes, claimed_nodes, in_words
from cede.engine.ledger.account import (
    FITS,
    Bound,
    Room,
    Verdict,
    fits,
    free_beside_returning,
    free_now,
    free_to_promise,
    headroom,
    kept_for_returning,
    missing,
    own_bounds,
    reserve_left,
    returning,
)
from cede.engine.ledger.admit import pause_reason, paused, told
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.queue import QueueKey
from cede.engine.ledger.tenants import nodes_reason
from cede.engine.nodes.eligible import EligibleNodes
from cede.engine.nodes.placement import View, place, places_for, suits
from cede.engine.queue.bounds import verdict_on
from cede.engine.queue.ends import end_bound
from cede.engine.queue.forecast import latest_start
from cede.engine.queue.view import eligible_nodes, site
from cede.engine.rights.cover import Holding
from cede.engine.rights.standing import BORROWED, IN_SHARE, LOWEST, Standing
from cede.engine.state.state import State
from cede.engine.state.trial import as_of
from cede.engine.steps import checkpoint as brokering
from cede.engine.victims.amounts import inside_reserve
from cede.engine.victims.pricing import shield
from cede.engine.victims.protection import Preemptor, first_young, spared
from cede.model.amounts import Amounts, plus, show, total
from cede.model.durations import seconds
from cede.model.lifecycle import AllocationState
from cede.model.policy import Policy
from cede.model.reason import Code, Reason
from cede.model.request import Request
from cede.model.settings import Rank
from cede.model.shape import Footprint, Shape

_HOLDERS_SHOWN = 20
# Names in one sentence.
_NAMED = 3


# Findings for a waiter that hold for the other waiters of its queue, within one read.
Known = dict[tuple[Any, ...], Any]


def waiting_reason(state: State, request: Request, known: Known | None = None) -> Reason:
    """The reason of a waiter, from the pool where capacity is on its way for it, else from its
    preferred pool.

    A paused waiter has no place in any pool, and one that waits for its turn is in no queue.
    Callers that ask for several waiters of one state pass all of them one `known`.
    """
    if paused(state, request):
        return pause_reason(state, request)
    if state.gates.shut(request):
        return turn_reason(state, request)
    known = {} if known is None else known
    reasons = [reason_in(state, request, policy, known) for policy in state.places(request.id)]
    for code in (Code.ON_ITS_WAY, Code.BEING_FREED):
        for each in reasons:
            if each.code is code:
                return each
    return reasons[0]


def reason_in(state: State, request: Request, policy: Policy, known: Known | None = None) -> Reason:
    """Why a waiter does not hold capacity in one pool yet: the pass's verdict in words."""
    ledger = state.ledgers[policy.pool_id]
    verdict = verdict_on(state, ledger, request, policy.id)
    if verdict.bound is None:
        return Reason(Code.NEXT, {"pool": ledger.pool.name})
    waiter = _Waiter(state, ledger, request, policy, verdict, {} if known is None else known)
    if verdict.bound in _ROOM and (instead := _refused(state, ledger, request)):
        detail = {"pool": ledger.pool.name, "amounts": show(waiter.demand)}
        return Reason(Code.GOES_TO_OTHERS, {**detail, "owner": _listed(instead)})
    return _WORDS[verdict.bound](waiter)


# Bounds of what is free, or can be freed.
_ROOM = {Bound.FREE, Bound.PROMISED, Bound.PLACEMENT}


def _refused(state: State, ledger: PoolLedger, request: Request) -> tuple[str, ...]:
    """The requests that would get what could be freed for a waiter, as the last pass found; empty
    if it found none.
    """
    found: tuple[str, ...] = state.refused.get(ledger.pool.id, {}).get(request.id, ())
    return found


@dataclass(frozen=True, slots=True)
class _Waiter:
    """A waiter with the verdict on it in one pool."""

    state: State
    ledger: PoolLedger
    request: Request
    policy: Policy
    verdict: Verdict
    known: Known = field(default_factory=dict)

    @property
    def demand(self) -> Amounts:
        return self.ledger.pool.metered(self.request.amounts)

    @property
    def granted(self) -> tuple[int, Standing]:
        """The rights and the standing that it would have."""
        place = ("granted", self.policy.id, self.request.id)
        if place not in self.known:
            found = as_granted(self.ledger, self.request, self.policy.id, self.demand)
            self.known[place] = found
        granted: tuple[int, Standing] = self.known[place]
        return granted

    @property
    def key(self) -> QueueKey:
        """The queue in which it waits."""
        place = ("queue", self.policy.id, self.request.id)
        if place not in self.known:
            self.known[place] = self.ledger.queue_of(self.policy.id, self.request)
        key: QueueKey = self.known[place]
        return key

    def names(self, key: str) -> dict[str, Any]:
        names = {"pool": self.ledger.pool.name, "policy": self.policy.name}
        return names | {"key": key, "requested": self.demand[key]}

    def view(
        self, only: EligibleNodes | None, *, promise: bool = False, besides: Iterable[str] = ()
    ) -> View:
        """Eligible nodes as it may use them, now or once leaving holders have left; promises to and
        capacity withheld for `besides` do not restrict it.
        """
        own = (self.request.id, *besides)
        bound = self.granted[1]
        return site(self.state, self.ledger, bound, promise=promise, own=own, only=only)


# The verdict in words -------------------------------------------------------------------------


def _delay(waiter: _Waiter) -> Reason:
    assert waiter.verdict.retry_at is not None, waiter
    left = seconds(waiter.verdict.retry_at - waiter.state.now)
    return Reason(Code.RETRY_DELAY, {"attempt": waiter.request.attempt, "seconds": left})


def _on_its_way(waiter: _Waiter) -> Reason:
    state, ledger, request = waiter.state, waiter.ledger, waiter.request
    leaving = [h for h in ledger.holdings.values() if h.leaving] if ledger.leaving else []
    mine = [h for h in leaving if state.allocations[h.id].taken_for == request.id]
    victims = [state.allocations[h.id].request_id for h in mine or leaving]
    return Reason(
        Code.ON_ITS_WAY,
        {
            "pool": ledger.pool.name,
            "amounts": show(waiter.demand),
            "victims": _listed(victims) or "those who leave",
        },
    )


def _tenant(waiter: _Waiter) -> Reason:
    tenant = waiter.state.tenancy.named[waiter.verdict.whose]
    return nodes_reason(tenant, _held(waiter.verdict, tenant.max_nodes or 0), waiter.request.tasks)


def _held(verdict: Verdict, bound: int) -> int:
    """The amount that uses up a bound."""
    return bound - verdict.available


def _task_group(waiter: _Waiter) -> Reason:
    """The reason when other tasks of its request have used up the request's limit."""
    verdict = waiter.verdict
    bound = waiter.request.terms.limit[verdict.key]
    enough = _held(verdict, bound) + verdict.requested
    return Reason(Code.REQUEST_LIMIT, {"key": verdict.key, "requested": enough, "bound": bound})


def _own_limit(waiter: _Waiter) -> Reason:
    enough, detail = _own(waiter, waiter.policy.limit[waiter.verdict.key])
    return Reason(Code.OWN_LIMIT, {"remedy": f"its limit be raised to {enough}", **detail})


def _own_reserve(waiter: _Waiter) -> Reason:
    key = waiter.verdict.key
    enough, detail = _own(waiter, waiter.policy.reserved.get(key, 0))
    return Reason(Code.OWN_RESERVED, {"remedy": f"{enough} {key} be reserved", **detail})


def _own(waiter: _Waiter, bound: int) -> tuple[int, dict[str, Any]]:
    """The amount that a bound of its own policy would need, and the details of the reason."""
    verdict = waiter.verdict
    held = _held(verdict, bound)
    enough = held + verdict.requested
    detail = {**waiter.names(verdict.key), "held": held, "bound": bound, "enough": enough}
    if enough > waiter.ledger.pool.capacity[verdict.key]:
        detail["remedy"] = "it ask for less"
    return enough, detail


def _limit_above(waiter: _Waiter) -> Reason:
    """The reason when the policies below an ancestor have used up the ancestor's limit."""
    verdict, above = waiter.verdict, waiter.ledger.policies[waiter.verdict.whose]
    bound = above.limit[verdict.key]
    detail = {"above": above.name, "held": _held(verdict, bound), "bound": bound}
    return Reason(Code.LIMIT_ABOVE, {**waiter.names(verdict.key), **detail})


def _not_free(waiter: _Waiter) -> Reason:
    """The reason when too little is free: out of service, being freed, or held by staying
    holders.
    """
    ledger = waiter.ledger
    on_nodes = ledger.inventory is not None
    if on_nodes and (reason := _off_nodes(waiter)) is not None:
        return reason
    if not fits(waiter.demand, free_to_promise(ledger, waiter.granted[1])):
        return _taking_reason(waiter)
    comes = ledger.inventory is None or _has_place(waiter, promise=True)
    return _being_freed(waiter) if comes else _no_place(waiter)


def _being_freed(waiter: _Waiter) -> Reason:
    """The reason when enough is being freed and promised to no waiter: it goes to the first in the
    queue that it suffices for, which may be another waiter or a victim that comes back.
    """
    state, ledger, key = waiter.state, waiter.ledger, waiter.verdict.key
    left, first = free_to_promise(ledger, waiter.granted[1]), []
    back = [
        (state.allocations[each].request_id, kind.amounts)
        for kind in returning(ledger, waiter.granted[1])
        for each in kind.allocation_ids
    ]
    for request_id, demand in (*back, *_before(waiter)):
        if fits(demand, left):
            first.append(request_id)
            left = {each: amount - demand.get(each, 0) for each, amount in left.items()}
    leaving = [h for h in ledger.holdings.values() if h.leaving and key in h.amounts]
    victims = [state.allocations[each.id].request_id for each in leaving]
    names = waiter.names(key) | {"freed": sum(each.amounts[key] for each in leaving)}
    if fits(waiter.demand, left):
        return Reason(Code.BEING_FREED, {**names, "victims": _listed(victims)})
    lacks = missing(waiter.demand, left)
    name = min(lacks, key=lambda each: (-lacks[each], each))
    names |= waiter.names(name) | {"missing": waiter.demand[name] - max(left[name], 0)}
    names["freed"] = sum(each.amounts.get(name, 0) for each in leaving)
    return Reason(Code.QUEUED_BEHIND, {**names, "owner": _listed(first)})


def _before(waiter: _Waiter) -> list[tuple[str, Amounts]]:
    """The waiters of its pool that come before it and that no bound of their own keeps back, in
    standing order; empty if there are too many to look at.
    """
    ledger = waiter.ledger
    if length(ledger) > PLACE_MAX:
        return []
    mine = order_of(ledger, waiter.request, waiter.policy.id, waiter.demand)
    rooms: dict[QueueKey, Room | None] = {}
    found = []
    for theirs, at in takewhile(lambda each: each[0] < mine, in_order(ledger)):
        if at not in rooms:
            rooms[at] = headroom(own_bounds(ledger, at))
        own, demand = rooms[at], ledger.queues[at].demand(theirs[3][2])
        if own is not None and fits(demand, own):
            found.append((theirs[3][2], demand))
    return found


def _listed(names: Sequence[str], many: int | None = None) -> str:
    """Some names, and the number of the others; `many` is the number of all, if given."""
    more = (len(names) if many is None else many) - _NAMED
    some = ", ".join(names[:_NAMED])
    return f"{some} and {more} more" if more > 0 else some


def _promised(waiter: _Waiter) -> Reason:
    ledger, bound = waiter.ledger, waiter.granted[1]
    owners = [each for each in ledger.earmarks if ledger.standing_of(each) >= bound]
    for kind in kept_for_returning(ledger, bound):
        owners += [waiter.state.allocations[each].request_id for each in kind.allocation_ids]
    detail = {"owner": _listed(owners)}
    return Reason(Code.EARMARKED, {**_shortage(waiter), **detail})


def _withheld(waiter: _Waiter) -> Reason:
    head = waiter.state.requests[waiter.verdict.whose]
    now, kept = waiter.state.now, head.withhold
    until, start = (now, None) if kept is None else (kept.until, kept.start)
    detail = {"pool": waiter.ledger.pool.name, "owner": head.id, "bypassed": head.bypassed}
    detail |= {"when": f"it was passed {head.bypassed} times", "sooner": ""}
    if start is not None and start > now:
        left = seconds(start - now)
        detail["when"] = f"it fits within {left} s, as walltimes say"
        detail["sooner"] = f"; work with a walltime of at most {left} s may start before"
    return Reason(Code.WITHHELD, {**detail, "seconds": seconds(max(until - now, 0))})


def _shortage(waiter: _Waiter) -> dict[str, Any]:
    """The key of which the most is missing beside staying and promised amounts, with numbers."""
    ledger = waiter.ledger
    left = free_beside_returning(ledger, waiter.granted[1])
    lacks = missing(waiter.demand, left) or {waiter.verdict.key: 0}
    key = min(lacks, key=lambda each: (-lacks[each], each))
    numbers = {"free": max(free_now(ledger)[key], 0), "bound": ledger.pool.capacity.get(key, 0)}
    numbers["missing"] = waiter.demand[key] - max(left[key], 0)
    return {**waiter.names(key), **numbers}


# Nodes ----------------------------------------------------------------------------------------


def _off_nodes(waiter: _Waiter) -> Reason | None:
    """The reason that keeps work off nodes that would otherwise suit, once for all waiters of the
    same form.
    """
    alike = ("off nodes", waiter.ledger.pool.id, waiter.ledger.form(waiter.request))
    if alike not in waiter.known:
        waiter.known[alike] = _nodes_out(waiter) or _held_outside(waiter)
    found: Reason | None = waiter.known[alike]
    return found


def _nodes_out(waiter: _Waiter) -> Reason | None:
    """The reason when nodes out of service would have enough, together with what is free."""
    inventory, form = waiter.ledger.inventory, waiter.ledger.form(waiter.request)
    assert inventory is not None and form is not None
    out = [
        spot.node
        for spot in inventory.spots.values()
        if not spot.node.usable and suits(spot.node, form)
    ]
    idle = total(
        dict(zip(inventory.keys, inventory.spots[each.id].free, strict=True)) for each in out
    )
    if not out or not fits(waiter.demand, plus(free_now(waiter.ledger), idle)):
        return None
    names = ", ".join(f"{n.name} ({n.state})" for n in out[:_HOLDERS_SHOWN])
    return Reason(Code.NODES_OUT, {"pool": waiter.ledger.pool.name, "nodes": names})


def _held_outside(waiter: _Waiter) -> Reason | None:
    """The reason when outside jobs hold a bridge's nodes on which a task would fit otherwise."""
    inventory, form = waiter.ledger.inventory, waiter.ledger.form(waiter.request)
    assert inventory is not None and form is not None
    need = inventory.room(dict(form.amounts))
    kept = []
    for spot in inventory.spots.values():
        if not (spot.node.others and spot.node.usable and suits(spot.node, form)):
            continue
        alone = tuple(map(sum, zip(spot.free, inventory.room(spot.node.others), strict=True)))
        fits_now = all(map(le, need, spot.free))
        if not fits_now and all(map(le, need, alone)):
            kept.append(spot.node)
    if not kept:
        return None
    names = ", ".join(f"{n.name} ({n.others_why})" for n in kept[:_HOLDERS_SHOWN])
    return Reason(Code.HELD_OUTSIDE, {"pool": waiter.ledger.pool.name, "nodes": names})


def _has_place(waiter: _Waiter, *, promise: bool = False, besides: Iterable[str] = ()) -> bool:
    """Whether its tasks find places on the nodes that it may use."""
    key = waiter.key
    only = eligible_nodes(waiter.ledger, key, BORROWED)[-1]
    view = waiter.view(only, promise=promise, besides=besides)
    return key.form is not None and place(view, key.form) is not None


def _no_place(waiter: _Waiter) -> Reason:
    """The reason that keeps its tasks off the nodes: the place of its checkpoint, withheld
    capacity, a claim, nodes that are not lent, or too little free in one place where no holder may
    be stopped.
    """
    ledger, request, key = waiter.ledger, waiter.request, waiter.key
    assert ledger.inventory is not None and key.form is not None
    only = eligible_nodes(ledger, key, BORROWED)[-1]
    view = waiter.view(only)
    if key.form.folders and place(view, key.form._replace(folders=())) is not None:
        return _elsewhere(waiter)
    if ledger.withheld and _has_place(waiter, besides=ledger.withheld):
        head_id = next(each for each in ledger.withheld if each != request.id)
        return _withheld(replace(waiter, verdict=replace(waiter.verdict, whose=head_id)))
    if ledger.inventory.claimed and (reason := _claimed(waiter)) is not None:
        return reason
    if (outside := _held_outside(waiter)) is not None:
        return outside
    shape = told(request.shape or Shape(request.amounts))
    detail = {"pool": ledger.pool.name, "found": places_for(view, key.form), **shape}
    first = f"pool {ledger.pool.name} has enough free or on its way in all"
    reason = Reason(Code.NO_NODE, {**detail, "first": first, "closest": ""})
    reason = _of_owner(waiter) or reason
    if only is not None and (nodes := _not_lent(waiter, only)):
        reason = Reason(Code.NOT_LENT, {**detail, "nodes": nodes})
    if not explain_price.by_price(ledger):
        return reason
    name, amount = _missing_places(request, reason)
    names = waiter.names(name) | {"missing": amount}
    return explain_price.would_not_pay(waiter.state, request, waiter.policy, names) or reason


def _of_owner(waiter: _Waiter) -> Reason | None:
    """The reason when no holder can be stopped for an owner inside its reserve, not even by
    amounts: the node that comes closest, and what is in the way there. None if that does not keep
    it waiting.
    """
    state, ledger, request, key = waiter.state, waiter.ledger, waiter.request, waiter.key
    if key.form is None or not inside_reserve(ledger, waiter.policy.id, waiter.demand):
        return None
    only, own = eligible_nodes(ledger, key, IN_SHARE)[-1], (request.id,)
    view = site(state, ledger, LOWEST, promise=True, own=own, only=only)
    owner = Preemptor(request, key, IN_SHARE, key.band, LOWEST, by_amounts=True)
    found = closest_node(state, ledger, owner, view, key.form)
    if found is None:
        return None
    detail: dict[str, Any] = {"pool": ledger.pool.name, "policy": waiter.policy.name}
    detail |= {"node": found.node.name}
    detail |= told(request.shape or Shape(request.amounts))
    detail["first"] = f"{waiter.policy.name} is inside its reserve in pool {ledger.pool.name}"
    detail |= {"found": places_for(view, key.form), "missing": show(found.missing)}
    return Reason(Code.NO_NODE, {**detail, "closest": f"; {found.text}"})


def _elsewhere(waiter: _Waiter) -> Reason:
    """The reason when it waits for nodes that have its checkpoint, and would start on others."""
    inventory, pin, saved = waiter.ledger.inventory, waiter.request.pin, waiter.request.saved
    assert inventory is not None and pin is not None
    having = [s.node for s in inventory.spots.values() if s.node.folder in pin.folders]
    names = ", ".join(f"{each.name} ({each.state})" for each in having[:_HOLDERS_SHOWN])
    then = "it starts when one of them has room"
    if pin.until is not None:
        left = seconds(max(pin.until - waiter.state.now, 0))
        then = f"{then}, or elsewhere after {left} s, from what is found there"
    what = "what it may have saved" if saved is None else f"its checkpoint {saved.id}"
    detail = {"pool": waiter.ledger.pool.name, "checkpoint": what, "nodes": names or "no node"}
    return Reason(Code.CHECKPOINT_ELSEWHERE, {**detail, "then": then})


def _claimed(waiter: _Waiter) -> Reason | None:
    """The reason when nodes are claimed for other users, if it would start there otherwise; that
    they are claimed is no secret.
    """
    ledger, policy, key = waiter.ledger, waiter.policy, waiter.key
    assert ledger.inventory is not None and key.form is not None
    *_, anyones = ledger.homes.eligible(policy.id, BORROWED, key.settled, None, key.form)
    view = waiter.view(anyones)
    if place(view, key.form) is None:
        return None
    roomy = {node_id for _, node_id in view.nodes(ledger.inventory.room(dict(key.form.amounts)))}
    nodes = [each for each in claimed_nodes(ledger, waiter.request, policy) if each.id in roomy]
    names = ", ".join(f"{each.name} (for {each.claimed_by})" for each in nodes[:_HOLDERS_SHOWN])
    return Reason(Code.NODES_CLAIMED, {"pool": ledger.pool.name, "nodes": names})


def _not_lent(waiter: _Waiter, only: EligibleNodes) -> str:
    """The nodes on which it would start if they were lent; empty if lending would not be enough."""
    ledger, form = waiter.ledger, waiter.key.form
    inventory = ledger.inventory
    assert inventory is not None and form is not None
    unclaimed = {spot.part for spot in inventory.spots.values() if not spot.node.claimed_by}
    theirs, own = EligibleNodes(inventory.spots, frozenset(unclaimed)), (waiter.request.id,)
    view = site(waiter.state, ledger, LOWEST, promise=False, own=own, only=theirs)
    if place(view, form) is None:
        return ""
    roomy = [node_id for _, node_id in view.nodes(inventory.room(dict(form.amounts)))]
    names = sorted(inventory.spots[each].node.name for each in roomy if each not in only)
    return ", ".join(names[:_HOLDERS_SHOWN])


def _missing_places(request: Request, reason: Reason) -> tuple[str, int]:
    """A key of a demand without enough places, and the amount of it that has no place."""
    key = max(request.amounts, key=lambda each: (request.amounts[each], each))
    tasks, found = reason.detail["tasks"], reason.detail["found"]
    return key, request.amounts[key] // tasks * (tasks - found)


def _taking_reason(waiter: _Waiter) -> Reason:
    """Why no holder may be stopped: the nearest rule that prevents it."""
    state, ledger, request, policy = waiter.state, waiter.ledger, waiter.request, waiter.policy
    names, granted = _shortage(waiter), waiter.granted
    key = names["key"]
    if ledger.starves and (reason := explain_fair.not_yet(state, ledger, request, policy, names)):
        return reason
    preemptor = explain_fair.preemptor_of(ledger, request, policy.id)
    young = first_young(state, ledger, preemptor, (key,))
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
    if (reason := _of_owner(waiter)) is not None:
        return reason
    others = [
        level
        for (level, _, policy_id, _), amounts in ledger.tiers.items()
        if policy_id != policy.id and key in amounts
    ]
    unused = reserve_left(ledger, policy.id, key)
    if granted[0] == BORROWED and unused > 0 and BORROWED in others and not ledger.fair:
        return Reason(
            Code.PARTIAL_HEADROOM,
            {**names, "headroom": unused, "missing": max(names["requested"] - unused, 0)},
        )
    return _held_by_others(waiter, names)


def _held_by_others(waiter: _Waiter, names: dict[str, Any]) -> Reason:
    """The holders of what is missing, and why none is stopped: the work is never stopped, or is not
    below this waiter, or what may be stopped is too little.
    """
    ledger, key = waiter.ledger, names["key"]
    sums, whose = _parts(waiter, key)
    words = dict(_HELD_WORDS)
    if sums["below"] < names["missing"]:
        words["below"] += ", which is not enough"
    elif ledger.inventory is not None:
        words["below"] += ", but not where this can sit"
    rest = "; ".join(
        f"{sums[kind]} {said} ({whose[kind]})" for kind, said in words.items() if kind in whose
    )
    code = (
        Code.PROTECTED
        if any(each in whose for each in ("above", "below", "spared"))
        else Code.NO_CAPACITY
    )
    return Reason(code, {**names, **sums, "rest": rest or "nobody holds the rest"})


def _parts(waiter: _Waiter, key: str) -> tuple[dict[str, int], dict[str, str]]:
    """The amount of a key that holders of each kind have, and their names. Waiters of one queue
    with the same rights and no promise get the same answer.
    """
    ledger = waiter.ledger
    alike = (ledger.pool.id, waiter.key, waiter.granted, *sorted(waiter.demand.items()), key)
    told = alike if waiter.request.id not in ledger.earmarks else None
    if told is not None and told in waiter.known:
        found: tuple[dict[str, int], dict[str, str]] = waiter.known[told]
        return found
    parts: dict[str, list[_Alike]] = {kind: [] for kind in _HELD_WORDS}
    for kind, each in _kinds(waiter, key):
        parts[kind].append(each)
    sums = {kind: sum(each.amount for each in mine) for kind, mine in parts.items()}
    listed = {kind: _names(waiter.state, mine, key) for kind, mine in parts.items() if mine}
    if told is not None:
        waiter.known[told] = (sums, listed)
    return sums, listed


@dataclass(frozen=True, slots=True)
class _Alike:
    """Holders of a key that are of one kind to a waiter."""

    amount: int
    holdings: list[Holding]
    largest: list[Holding]  # some of them, the largest first


def _together(holdings: list[Holding], key: str) -> _Alike:
    some = heapq.nsmallest(_NAMED, holdings, key=_by_size(key))
    return _Alike(sum(each.amounts[key] for each in holdings), holdings, some)


def _by_size(key: str) -> Callable[[Holding], tuple[int, int]]:
    return lambda each: (-each.amounts[key], each.index)


def _names(state: State, parts: list[_Alike], key: str) -> str:
    """The names of the requests of these holdings, those with the most of a key first."""
    some = heapq.nsmallest(_NAMED, chain(*(each.largest for each in parts)), key=_by_size(key))
    names = [each.id if each.earmark else state.allocations[each.id].request_id for each in some]
    return _listed(names, sum(len(each.holdings) for each in parts))


def _kinds(waiter: _Waiter, key: str) -> Iterator[tuple[str, _Alike]]:
    """The holders of a key by what they are to a waiter: a key of `_HELD_WORDS`."""
    state, ledger, (_, bound) = waiter.state, waiter.ledger, waiter.granted
    for (kind, policy_id, standing), each in _holders_of(waiter, key).items():
        if kind == "promised":
            others = [holding for holding in each.holdings if holding.id != waiter.request.id]
            if others:
                yield kind, _together(others, key)
        elif kind:
            yield kind, each
        elif policy_id == waiter.policy.id:
            yield "own", each
        elif not standing < bound:
            yield "above", each
        else:
            preemptor = explain_fair.preemptor_of(ledger, waiter.request, waiter.policy.id)
            split: dict[str, list[Holding]] = {}
            for holding in each.holdings:
                kept = spared(state, ledger, preemptor, holding, ledger.rights(holding.id))
                split.setdefault("below" if kept is None else "spared", []).append(holding)
            for into, some in split.items():
                yield into, _together(some, key)


def _holders_of(waiter: _Waiter, key: str) -> dict[tuple[str, str, Standing], _Alike]:
    """The staying holders of a key, grouped as far as every waiter sees them alike: promises,
    holders that are never stopped, and the rest by policy and standing.

    Computed once for all waiters of a read, or until the ledger changes where nothing else can
    change which holders are never stopped.
    """
    state, ledger = waiter.state, waiter.ledger
    settings = ledger.pool.settings
    lasting = settings.rank is Rank.PRIORITY and not settings.near_completion_threshold
    kept = ledger.holders_alike if lasting else waiter.known
    place = ("holders", ledger.pool.id, key)
    if place not in kept:
        found: dict[tuple[str, str, Standing], list[Holding]] = {}
        for holding in ledger.holdings.values():
            if key not in holding.amounts or holding.leaving:
                continue
            if holding.earmark:
                at = ("promised", "", LOWEST)
            elif not holding.takeable or holding.safe or shield(state, ledger, holding) is not None:
                at = ("fixed", "", LOWEST)
            else:
                at = ("", holding.policy_id, ledger.standing_of(holding.id))
            found.setdefault(at, []).append(holding)
        kept[place] = {at: _together(each, key) for at, each in found.items()}
    alike: dict[tuple[str, str, Standing], _Alike] = kept[place]
    return alike


_HELD_WORDS = {
    "fixed": "are held by work that is stopped for nobody",
    "above": "are held by work that is not below this in standing",
    "below": "are held by work below this in standing",
    "spared": "are held by work that only its protection keeps from being stopped for this",
    "own": "are held by other work of its own policy",
    "promised": "are promised",
}


def _quarantine(waiter: _Waiter) -> Reason:
    detail = {"pool": waiter.ledger.pool.name, "unknown": unknown(waiter.state)}
    return Reason(Code.RESTORED, detail)


_WORDS: dict[Bound, Callable[[_Waiter], Reason]] = {
    Bound.QUARANTINE: _quarantine,
    Bound.DELAY: _delay,
    Bound.OWN_PROMISE: _on_its_way,
    Bound.TENANT: _tenant,
    Bound.TASK_GROUP: _task_group,
    Bound.OWN_LIMIT: _own_limit,
    Bound.OWN_RESERVE: _own_reserve,
    Bound.LIMIT_ABOVE: _limit_above,
    Bound.FREE: _not_free,
    Bound.PROMISED: _promised,
    Bound.WITHHELD: _withheld,
    Bound.PLACEMENT: _no_place,
}


# The full account -----------------------------------------------------------------------------


def why(state: State, request_id: str, now: int, *, tried: bool = True) -> dict[str, Any]:
    """The full account of a request that has not ended.

    Without `tried` no changes are tried out, which is the expensive part, for callers that ask
    often.
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
    places = () if state.gates.shut(request) else state.places(request_id)
    story["pools"] = [_pool_story(state, request, policy, tried) for policy in places]
    found = [each for pool in story["pools"] for each in pool["changes"] or ()]
    reason = story["reason"]
    says_how = "remedy" in reason or "cede " in reason["fix"] or reason["fix"].startswith("nothing")
    if found and not says_how:
        # The tried changes that start it, where the reason has no remedy for this very case.
        reason["fix"] = in_words(found)
    return story


def latest_start_in(state: State, request: Request, pool_id: str) -> int | None:
    """The instant at which a waiter of a pool starts there at the latest; None if nothing proves
    one.
    """
    ledger = state.ledgers[pool_id]
    for policy in state.places(request.id):
        if policy.pool_id == pool_id:
            return latest_start(state, ledger, request, policy.id)
    return None


def _pool_story(state: State, request: Request, policy: Policy, tried: bool) -> dict[str, Any]:
    ledger = state.ledgers[policy.pool_id]
    demand = ledger.pool.metered(request.amounts)
    start = latest_start(state, ledger, request, policy.id)
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
        "in_share": _rights(ledger, request, policy.id, demand) == IN_SHARE,
        "place": _place(state, ledger, request, policy),
        "bypassed": request.bypassed,
        "holders": _holders(state, ledger, request, policy, demand),
        "changes": list(changes(state, ledger, request, policy, demand)) if tried else None,
        "earliest_start": None if start is None else seconds(start - state.now),
    }


def _place(state: State, ledger: PoolLedger, request: Request, policy: Policy) -> int | None:
    """Its place in this pool's queue, from 1: waiters start before it that were promised capacity
    before it, or that come before it and that no bound of their own keeps back. None where there
    are too many to count.
    """
    if length(ledger) > PLACE_MAX:
        return None
    owners = [each for each in ledger.earmarks.values() if each.id != request.id]
    if request.id in ledger.earmarks:
        return 1 + sum(each.index < ledger.earmarks[request.id].index for each in owners)
    waiter = _Waiter(state, ledger, request, policy, FITS)
    bound = waiter.granted[1]
    promised = sum(ledger.standing_of(each.id) >= bound for each in owners)
    return 1 + promised + len(_before(waiter))


def _rights(ledger: PoolLedger, request: Request, policy_id: str, demand: Amounts) -> int:
    """The rights that a waiter would have; with an earmark those of the promise, which already
    counts as a holding.
    """
    if request.id in ledger.earmarks:
        return ledger.rights(request.id)
    return as_granted(ledger, request, policy_id, demand)[0]


def _nodes(state: State, footprint: Footprint) -> list[str]:
    return [state.nodes[node_id].name for node_id, _ in footprint[:_HOLDERS_SHOWN]]


def _holders(
    state: State, ledger: PoolLedger, request: Request, policy: Policy, demand: Amounts
) -> list[dict[str, Any]]:
    """The other holders of what this waiter needs, the largest first."""

    def size(holding: Holding) -> tuple[int, int]:
        return (-sum(holding.amounts.get(key, 0) for key in demand), -holding.index)

    others = [each for each in ledger.holdings.values() if each.id != request.id]
    useful = [each for each in others if any(key in each.amounts for key in demand)]
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

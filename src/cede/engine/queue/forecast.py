"""When a demand would fit at the latest, as far as walltimes, stops and leases bound it."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from operator import add, ge, sub

from cede.engine.ledger.account import fits, free_beside_promises, free_now, limit_room
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.nodes.listing import Room, Spot
from cede.engine.nodes.placement import View, need_of, places_for, slots, suits
from cede.engine.queue.view import eligible_nodes, locate, site
from cede.engine.rights.cover import Holding
from cede.engine.rights.standing import BORROWED, LOWEST
from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.amounts import Amounts, add_to
from cede.model.lifecycle import AllocationState
from cede.model.request import Request
from cede.model.shape import Footprint, Form


def end_bound(state: State, allocation: Allocation) -> int | None:
    """The latest instant at which an allocation has certainly given its units back; None if nothing
    says.
    """
    if allocation.state is AllocationState.LOST:
        return None
    ends = [each for each in (allocation.ends_at,) if each is not None]
    if allocation.leaving and allocation.deadline is not None:
        ends.append(allocation.deadline)
    return min(ends, default=None)


@dataclass(frozen=True, slots=True)
class Start:
    """When a demand would fit at the latest and, in a pool of nodes, where."""

    at: int
    footprint: Footprint = ()


def earliest_start(state: State, ledger: PoolLedger, request: Request) -> Start | None:
    """When the bounded holders alone have made room; None when an unbounded one is needed.

    What is promised to others is not coming to this one; what is promised to itself is.
    """
    if ledger.pool.quarantine is not None:
        return None
    ends = sorted(
        (end, holding_id)
        for holding_id, holding in ledger.holdings.items()
        if not holding.earmark
        and (end := end_bound(state, state.allocations[holding_id])) is not None
    )
    if ledger.inventory is not None:
        return _start_on_nodes(state, ledger, request, ends)
    demand = ledger.pool.metered(request.amounts)
    room = free_beside_promises(ledger, request.id)
    if fits(demand, room):
        return Start(state.now)
    for end, holding_id in ends:
        add_to(room, ledger.holdings[holding_id].amounts)
        if fits(demand, room):
            return Start(max(end, state.now))
    return None


def _start_on_nodes(
    state: State, ledger: PoolLedger, request: Request, ends: list[tuple[int, str]]
) -> Start | None:
    policy = next(each for each in state.places(request.id) if each.pool_id == ledger.pool.id)
    key, own = ledger.queue_of(policy.id, request), (request.id,)
    assert key.form is not None
    # Each reach is part of the next, and place asks only that the tasks of all nodes add up.
    only = eligible_nodes(ledger, key, BORROWED)[-1]
    view = site(state, ledger, LOWEST, promise=False, own=own, only=only)
    counts = [_fewest_ends(view, ledger, each, own, ends) for each in key.form.by_folder]
    if None in counts:
        return None
    count = max(each for each in counts if each is not None)
    gone = [holding_id for _, holding_id in ends[:count]]
    footprint = locate(state, ledger, key, BORROWED, LOWEST, promise=False, own=own, gone=gone)
    assert footprint is not None, (request, count)
    return Start(max(ends[count - 1][0], state.now) if count else state.now, footprint)


def _fewest_ends(
    view: View, ledger: PoolLedger, form: Form, own: Container[str], ends: list[tuple[int, str]]
) -> int | None:
    """After how many ends all tasks find a place; None when not even after the last.

    Who leaves changes only the nodes it is on, so it is those that are counted again.
    """
    inventory, need = view.inventory, need_of(view.inventory, form)
    if need is None:
        return None
    found = places_for(view, form)
    rooms: dict[str, _Emptying | None] = {}
    for count, (_, holding_id) in enumerate(ends):
        if found >= form.tasks:
            return count
        holding = ledger.holdings[holding_id]
        for node_id, tasks in holding.footprint:
            if node_id not in rooms:
                spot = inventory.spots[node_id]
                takes = spot.node.usable and view.allows(node_id) and suits(spot.node, form)
                rooms[node_id] = _Emptying(view, spot, own) if takes else None
            if (room := rooms[node_id]) is not None:
                found -= room.slots(need, form.per_node)
                room.leave(holding, tasks)
                found += room.slots(need, form.per_node)
    return len(ends) if found >= form.tasks else None


class _Emptying:
    """What a waiter may use of one node, as holders leave it one after the other."""

    def __init__(self, view: View, spot: Spot, own: Container[str]) -> None:
        self._keys, self._amounts = view.inventory.keys, spot.node.amounts
        self._free, _, self._promise = view.inventory.rooms(spot, own)
        seen, _ = spot.now
        seen = view.instead.get(spot.node.id, seen)
        now = map(min, self._free, self._promise)
        self._withheld = tuple(map(sub, now, seen))

    def leave(self, holding: Holding, tasks: int) -> None:
        each, has = holding.each, self._amounts
        room = [tasks * each.get(key, 0) if key in has else 0 for key in self._keys]
        self._free = tuple(map(add, self._free, room))
        if not holding.leaving:  # otherwise it was promised already
            self._promise = tuple(map(add, self._promise, room))

    def slots(self, need: Room, most: int) -> int:
        room = tuple(map(sub, map(min, self._free, self._promise), self._withheld))
        return slots(room, need, most) if all(map(ge, room, need)) else 0


# When it starts at the latest ------------------------------------------------------------------


def latest_start(state: State, ledger: PoolLedger, request: Request, policy_id: str) -> int | None:
    """The instant by which a waiter certainly starts, whatever order holders end in, unless
    something new comes; None where nothing proves one.

    Whoever else waits, and whoever may be stopped and come back, may start before it: it surely
    starts once there is room for all of them and for it. On nodes a sum proves nothing about
    places, so there it is said only of a waiter that is alone.
    """
    if request.earmark is not None and request.earmark.pool_id == ledger.pool.id:
        return _promise_kept(state, ledger)
    if not _bound_by_room_alone(state, ledger, request):
        return None
    chain, demand = ledger.chains[policy_id], ledger.pool.metered(request.amounts)
    rivals = _rivals(ledger, request.id)
    if ledger.inventory is not None:
        if rivals or not all(fits(demand, limit_room(ledger, each)) for each in chain):
            return None
        start = earliest_start(state, ledger, request)
        return None if start is None or start.at <= state.now else start.at
    room = [_free_beside(ledger, rivals), *(_left_beside(ledger, each, rivals) for each in chain)]
    for end, holding in _ends(state, ledger, rivals):
        add_to(room[0], holding.amounts)
        for each, left in zip(chain, room[1:], strict=True):
            if each in ledger.chains[holding.policy_id]:
                add_to(left, {key: n for key, n in holding.amounts.items() if key in left})
        if all(fits(demand, left) for left in room):
            return end
    return None


def _bound_by_room_alone(state: State, ledger: PoolLedger, request: Request) -> bool:
    """Whether nothing but room in one pool keeps a waiter: no delay, quota, limit or reserve of its
    own, no node that must be lent; and nobody comes here from another pool, or once a dependency or
    a task of its array has ended.
    """
    elsewhere = any(len(state.policies_of(each.subject)) > 1 for each in ledger.policies.values())
    free = request.preemptible and not request.terms.limit and not request.terms.tenant
    if not free or elsewhere or state.delayed or ledger.homes.matter:
        return False
    kept = (policy for each in state.gates.kept() for policy in state.places(each))
    return all(policy.pool_id != ledger.pool.id for policy in kept)


def _ends(
    state: State, ledger: PoolLedger, rivals: dict[str, Amounts]
) -> list[tuple[int, Holding]]:
    """Holders that are certainly gone by an instant to come, and do not come back."""
    ends = [
        (end, each)
        for each in ledger.holdings.values()
        if each.id not in rivals
        and (end := end_bound(state, state.allocations[each.id])) is not None
        and end > state.now  # who is overdue has broken its word already
    ]
    return sorted(ends, key=lambda each: (each[0], each[1].id))


def _promise_kept(state: State, ledger: PoolLedger) -> int | None:
    """When everybody who is on the way out has left; None while somebody may still ask for time."""
    leaving = [state.allocations[each.id] for each in ledger.holdings.values() if each.leaving]
    if not leaving or any(each.state is not AllocationState.STOPPING for each in leaving):
        return None
    ends = [end for each in leaving if (end := end_bound(state, each)) is not None]
    return max(ends) if len(ends) == len(leaving) and min(ends) > state.now else None


def _rivals(ledger: PoolLedger, request_id: str) -> dict[str, Amounts]:
    """Whatever may hold units when a waiter could start, with what it would hold beside what is
    held now: other waiters, promises, and holders that leave or may be stopped and wait again.
    """
    found: dict[str, Amounts] = {
        other_id: queue.demand(other_id)
        for queue in ledger.queues.values()
        for other_id in queue
        if other_id != request_id
    }
    found |= {each.id: each.amounts for each in ledger.earmarks.values()}
    others = bool(found)
    for holding in ledger.holdings.values():
        if not holding.earmark and (holding.leaving or (others and holding.takeable)):
            found[holding.id] = {}
    return found


def _free_beside(ledger: PoolLedger, rivals: dict[str, Amounts]) -> dict[str, int]:
    """What is free once every rival has been granted what it wants."""
    room = free_now(ledger)
    for demand in rivals.values():
        _take(room, demand)
    return room


def _left_beside(ledger: PoolLedger, policy_id: str, rivals: dict[str, Amounts]) -> dict[str, int]:
    """The same of a policy's limit, in which promises are counted already."""
    room = limit_room(ledger, policy_id)
    for key, queue in ledger.queues.items():
        if policy_id in ledger.chains[key.policy_id]:
            for demand in (rivals[each] for each in queue if each in rivals):
                _take(room, demand)
    return room


def _take(room: dict[str, int], demand: Amounts) -> None:
    for key, amount in demand.items():
        if key in room:
            room[key] -= amount

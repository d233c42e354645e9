"""When a demand would fit at the latest, as far as walltimes, stops and leases bound it."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from operator import add, ge, sub

from cede.engine.ledger.account import fits, free_beside_promises
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.nodes.listing import Room, Spot
from cede.engine.nodes.placement import View, need_of, places_for, slots, suits
from cede.engine.queue.view import eligible_nodes, locate, site
from cede.engine.rights.cover import Holding
from cede.engine.rights.standing import BORROWED, LOWEST
from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.amounts import add_to
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

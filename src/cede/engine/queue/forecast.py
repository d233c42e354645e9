"""The instant at which a demand fits at the latest, as far as walltimes, stops and leases bound
it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import add

from cede.engine.ledger.account import fits, free_beside_promises
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.nodes.listing import Room, Spot
from cede.engine.nodes.placement import View, need_of, places_for, slots, suits
from cede.engine.queue.cursor import streams_of
from cede.engine.queue.ends import end_bound, ends_by
from cede.engine.queue.view import (
    Kept,
    eligible_nodes,
    locate,
    room_beside,
    site,
    withheld_on_nodes,
)
from cede.engine.rights.cover import Holding
from cede.engine.rights.standing import BORROWED, LOWEST
from cede.engine.state.state import State
from cede.model.amounts import Amounts, add_to
from cede.model.lifecycle import AllocationState
from cede.model.request import Request
from cede.model.shape import Footprint, Form


@dataclass(frozen=True, slots=True)
class Start:
    """The instant at which a demand fits at the latest and, in a pool of nodes, its nodes."""

    at: int
    footprint: Footprint = ()


@dataclass(frozen=True, slots=True)
class HeadStart:
    """The same for the head of a queue; `at` is None if no bound gives it."""

    at: int | None
    footprint: Footprint = ()


def earliest_start(state: State, ledger: PoolLedger, request: Request) -> Start | None:
    """The start once bounded holders have made room; None if an unbounded one is needed. What is
    promised to others does not count as coming; what is promised to the request does.
    """
    if ledger.pool.quarantine is not None:
        return None
    ends = _ends(state, ledger)
    leave = list(ends)
    found = _after_ends(state, ledger, request, leave)
    if found is None:
        return None
    count, footprint = found
    return Start(max(ends[leave[count - 1]], state.now) if count else state.now, footprint)


def head_start(
    state: State, ledger: PoolLedger, request: Request, *, known: bool = False
) -> HeadStart | None:
    """The start of a queue's head: after the holders with a bounded end and, if these are not
    enough, the longest running of the others too. None if not even then, or if `known` and no bound
    gives the instant.
    """
    # An overdue holder has already missed its bound.
    ends = {each: end for each, end in _ends(state, ledger).items() if end > state.now}
    if known and not ends:
        return None
    leave = list(ends)
    if not known:
        held = (each for each in ledger.holdings.values() if not each.earmark)
        others = (each for each in held if each.id not in ends)
        leave += [each.id for each in sorted(others, key=lambda each: each.index)]
    found = _after_ends(state, ledger, request, leave)
    if found is None:
        return None
    count, footprint = found
    if count > len(ends):
        return HeadStart(None, footprint)
    return HeadStart(ends[leave[count - 1]] if count else state.now, footprint)


def _ends(state: State, ledger: PoolLedger) -> dict[str, int]:
    """The holders with a bounded end and that end, in order; cached until something changes."""
    version, ends = ledger.ends
    if version != ledger.version:
        held = (each.id for each in ledger.holdings.values() if not each.earmark)
        found = [(end_bound(state, state.allocations[each]), each) for each in held]
        in_order = sorted((end, each) for end, each in found if end is not None)
        ends = {each: end for end, each in in_order}
        ledger.ends = ledger.version, ends
    return ends


def _after_ends(
    state: State, ledger: PoolLedger, request: Request, leave: list[str]
) -> tuple[int, Footprint] | None:
    """After how many of these holders have left a demand fits and, in a pool of nodes, where."""
    if ledger.inventory is not None:
        return _ends_on_nodes(state, ledger, request, leave)
    demand = ledger.pool.metered(request.amounts)
    room = free_beside_promises(ledger, request.id)
    for count, holding_id in enumerate(leave):
        if fits(demand, room):
            return count, ()
        add_to(room, ledger.holdings[holding_id].amounts)
    return (len(leave), ()) if fits(demand, room) else None


def spare_beside(state: State, ledger: PoolLedger, head: Request) -> dict[str, int]:
    """The room that a later waiter may use in a pool without nodes, however long it runs, so that a
    head still fits at its start: what is free then beside the head's demand.
    """
    start = None if head.withhold is None else head.withhold.start
    room = free_beside_promises(ledger, head.id)
    if start is not None:
        for holding in ledger.holdings.values():
            if not holding.earmark and ends_by(state, holding.id, start):
                add_to(room, holding.amounts)
    for key, amount in ledger.pool.metered(head.amounts).items():
        room[key] -= amount
    return room


def _ends_on_nodes(
    state: State, ledger: PoolLedger, request: Request, leave: list[str]
) -> tuple[int, Footprint] | None:
    policy = next(each for each in state.places(request.id) if each.pool_id == ledger.pool.id)
    key, own = ledger.queue_of(policy.id, request), (request.id,)
    assert key.form is not None
    # Each entry's nodes are part of the next's, and place only needs the tasks of all nodes to add
    # up.
    only = eligible_nodes(ledger, key, BORROWED)[-1]
    view = site(state, ledger, LOWEST, promise=False, own=own, only=only)
    kept = withheld_on_nodes(state, ledger, LOWEST, own)
    room_on = partial(_Beside, state, view, kept, own) if kept else partial(_Emptying, view, own)
    counts = [_fewest_ends(view, ledger, each, room_on, leave) for each in key.form.by_folder]
    if None in counts:
        return None
    count = max(each for each in counts if each is not None)
    gone = leave[:count]
    footprint = locate(state, ledger, key, BORROWED, LOWEST, promise=False, own=own, gone=gone)
    assert footprint is not None, (request, count)
    return count, footprint


def _fewest_ends(
    view: View,
    ledger: PoolLedger,
    form: Form,
    room_on: Callable[[Spot], _Emptying | _Beside],
    leave: list[str],
) -> int | None:
    """After how many ends all tasks find a place; None if not even after the last.

    A leaving holder changes only its own nodes, so only these are counted again.
    """
    inventory, need = view.inventory, need_of(view.inventory, form)
    if need is None:
        return None
    found = places_for(view, form)
    rooms: dict[str, _Emptying | _Beside | None] = {}
    for count, holding_id in enumerate(leave):
        if found >= form.tasks:
            return count
        holding = ledger.holdings[holding_id]
        for node_id, tasks in holding.footprint:
            if node_id not in rooms:
                spot = inventory.spots[node_id]
                takes = spot.node.usable and view.allows(node_id) and suits(spot.node, form)
                rooms[node_id] = room_on(spot) if takes else None
            if (room := rooms[node_id]) is not None:
                found -= slots(room.left(), need, form.per_node)
                room.leave(holding, tasks)
                found += slots(room.left(), need, form.per_node)
    return len(leave) if found >= form.tasks else None


class _Emptying:
    """The room that a waiter may use on one node, as holders leave it one after the other."""

    def __init__(self, view: View, own: Container[str], spot: Spot) -> None:
        self._keys, self._amounts = view.inventory.keys, spot.node.amounts
        self._free, _, self._promise = view.inventory.rooms(spot, own)

    def leave(self, holding: Holding, tasks: int) -> None:
        each, has = holding.each, self._amounts
        room = [tasks * each.get(key, 0) if key in has else 0 for key in self._keys]
        self._free = tuple(map(add, self._free, room))
        if not holding.leaving:  # otherwise it was promised already
            self._promise = tuple(map(add, self._promise, room))

    def left(self) -> Room:
        return tuple(map(min, self._free, self._promise))


class _Beside:
    """The same on a node where room may be kept for heads."""

    def __init__(
        self, state: State, view: View, kept: Mapping[str, Kept], own: Iterable[str], spot: Spot
    ) -> None:
        node_id = spot.node.id
        self._gone = set(own)
        self._room = partial(room_beside, state, view.inventory, node_id)
        self._kept = kept.get(node_id)

    def leave(self, holding: Holding, _tasks: int) -> None:
        self._gone.add(holding.id)

    def left(self) -> Room:
        return self._room(self._gone, self._kept, False)


# The latest start -----------------------------------------------------------------------------


def latest_start(state: State, ledger: PoolLedger, request: Request, policy_id: str) -> int | None:
    """The instant by which a waiter certainly starts, whatever order holders end in, unless a
    request of higher standing arrives; None if nothing proves one.

    Only a waiter with an earmark, and the head that capacity is withheld for until a known instant,
    have one: later waiters of their standing may not take what is kept for them.
    """
    if request.earmark is not None and request.earmark.pool_id == ledger.pool.id:
        return _promise_kept(state, ledger)
    kept = request.withhold
    if (
        kept is None
        or kept.pool_id != ledger.pool.id
        or not _bound_by_room_alone(state, ledger, request, policy_id)
    ):
        return None
    known = kept.start is not None and kept.start > state.now
    return kept.start if known and not _outranked(ledger, request, policy_id) else None


def _bound_by_room_alone(
    state: State, ledger: PoolLedger, request: Request, policy_id: str
) -> bool:
    """Whether only room in one pool keeps a waiter: no delay, quota, limit or reserve of its own,
    no node that must be lent; and no waiter comes here from another pool, or once a dependency or a
    task of its array has ended.
    """
    elsewhere = any(len(state.policies_of(each.subject)) > 1 for each in ledger.policies.values())
    free = request.preemptible and not request.terms.limit and not request.terms.tenant
    for above in ledger.chains[policy_id]:  # others of its own may use a limit up
        limit, demand = ledger.policies[above].limit, ledger.pool.metered(request.amounts)
        free = free and all(limit.get(key, most) >= most for key, most in _most(ledger, demand))
    if not free or elsewhere or state.delayed or ledger.homes.matter:
        return False
    kept_back = (policy for each in state.gates.kept() for policy in state.places(each))
    return all(policy.pool_id != ledger.pool.id for policy in kept_back)


def _most(ledger: PoolLedger, demand: Amounts) -> Iterator[tuple[str, int]]:
    return ((key, ledger.pool.capacity.get(key, 0)) for key in demand)


def _outranked(ledger: PoolLedger, request: Request, policy_id: str) -> bool:
    """Whether another waiter may come to stand above this one: where a share has room for the other
    and not for this one.
    """
    mine = streams_of(ledger, ledger.queue_of(policy_id, request))[-1].standing
    for key, queue in ledger.queues.items():
        others = len(queue) - (request.id in queue)
        if others and streams_of(ledger, key)[0].standing > mine:
            return True
    return False


def _promise_kept(state: State, ledger: PoolLedger) -> int | None:
    """The instant at which all leaving holders have left; None while one may still ask for time."""
    leaving = [state.allocations[each.id] for each in ledger.holdings.values() if each.leaving]
    if not leaving or any(each.state is not AllocationState.STOPPING for each in leaving):
        return None
    ends = [end for each in leaving if (end := end_bound(state, each)) is not None]
    return max(ends) if len(ends) == len(leaving) and min(ends) > state.now else None

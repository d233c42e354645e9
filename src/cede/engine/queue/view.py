"""The nodes of a pool as one waiter may use them: by its standing, and with some holders gone.

Promises to waiters of lower standing do not restrict it, nor do those to itself; what is withheld
for a head of its standing or above does.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from operator import add, sub
from typing import NamedTuple

from cede.engine.ledger.account import rights_if_granted
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.queue import QueueKey
from cede.engine.nodes.eligible import EligibleNodes
from cede.engine.nodes.inventory import NodeInventory
from cede.engine.nodes.listing import Room
from cede.engine.nodes.placement import View, place
from cede.engine.queue.ends import ends_by
from cede.engine.rights.standing import LOWEST, Standing
from cede.engine.state.state import State
from cede.model.allocation import Member
from cede.model.copying import replace
from cede.model.request import Request
from cede.model.shape import Footprint


def site(
    state: State,
    ledger: PoolLedger,
    bound: Standing,
    *,
    promise: bool,
    own: Container[str] = (),
    gone: Iterable[str] = (),
    only: EligibleNodes | None = None,
) -> View:
    """The view of a waiter of standing `bound`: the rooms that it may use, now or to promise, once
    `gone` have left; on all nodes or on some.
    """
    inventory = ledger.inventory
    assert inventory is not None
    without = {*gone, *_below(ledger, bound, own)}
    touched: dict[str, None] = {}
    for holding_id in without:
        touched.update((node_id, None) for node_id, _ in ledger.holdings[holding_id].footprint)
    kept = withheld_on_nodes(state, ledger, bound, own)
    touched.update((node_id, None) for node_id in kept)
    instead = {
        node_id: room_beside(state, inventory, node_id, without, kept.get(node_id), promise)
        for node_id in touched
        if inventory.spots[node_id].node.usable
    }
    return View(inventory, inventory.promise if promise else inventory.now, instead, only)


def eligible_nodes(ledger: PoolLedger, key: QueueKey, rights: int) -> list[EligibleNodes | None]:
    """The nodes that waiters of a queue may use at these rights, preferred ones first."""
    return list(_reach(ledger, key, rights))


def _reach(ledger: PoolLedger, key: QueueKey, rights: int) -> Iterator[EligibleNodes | None]:
    """The eligible nodes one set after the other: what others lend is computed only when it is
    needed.
    """
    assert key.form is not None
    return ledger.homes.eligible(key.policy_id, rights, key.settled, key.claimant, key.form)


def locate(
    state: State,
    ledger: PoolLedger,
    key: QueueKey,
    rights: int,
    bound: Standing,
    *,
    promise: bool,
    own: Container[str] = (),
    gone: Iterable[str] = (),
) -> Footprint | None:
    """The footprint of a waiter of a queue at these rights, now or to promise; None if there is no
    place.
    """
    assert key.form is not None
    for only in _reach(ledger, key, rights):
        view = site(state, ledger, bound, promise=promise, own=own, gone=gone, only=only)
        footprint = place(view, key.form)
        if footprint is not None:
            return footprint
    return None


def room_beside(
    state: State,
    inventory: NodeInventory,
    node_id: str,
    without: set[str],
    kept: Kept | None,
    promise: bool,
) -> Room:
    """The room of one node that a waiter may use, beside what is kept for heads."""
    room = _room(inventory, node_id, without, promise)
    if kept is None:
        return room
    if promise:  # a victim of this waiter does not also make room for the head
        return tuple(map(sub, room, kept.need))
    ending = {
        holding_id
        for holding_id, (held, _) in inventory.spots[node_id].holdings.items()
        if not held.earmark and ends_by(state, holding_id, kept.start)
    }
    then = _room(inventory, node_id, without | ending, promise)
    return tuple(map(min, room, map(sub, then, kept.need)))


def _room(inventory: NodeInventory, node_id: str, without: Container[str], promise: bool) -> Room:
    free, _, promisable = inventory.rooms(inventory.spots[node_id], without)
    return promisable if promise else tuple(map(min, free, promisable))


def _below(ledger: PoolLedger, bound: Standing, own: Container[str]) -> Iterator[str]:
    """The owners of earmarks that do not restrict the waiter."""
    for (_, rank, rights), queue in ledger.owed.items():
        below = len(queue) and ledger.standing(rank, rights) < bound
        for owner_id in queue:
            if below or owner_id in own:
                yield owner_id


class Kept(NamedTuple):
    """The room kept on a node for heads, and the instant at which they certainly use it; None if
    unknown.

    Until then other waiters may use it, and for longer only what is left beside it then.
    """

    need: Room
    start: int | None

    def beside(self, other: Kept) -> Kept:
        starts = [each for each in (self.start, other.start) if each is not None]
        return Kept(tuple(map(add, self.need, other.need)), min(starts) if starts[1:] else None)


def withheld_on_nodes(
    state: State, ledger: PoolLedger, bound: Standing, own: Container[str]
) -> dict[str, Kept]:
    """The room that is kept on each node for heads that restrict the waiter."""
    assert ledger.inventory is not None
    found: dict[str, Kept] = {}
    for head_id, policy_id in ledger.withheld.items():
        head = state.requests[head_id]
        if head_id in own or head.withhold is None:
            continue
        if head_standing(ledger, policy_id, head) < bound:
            continue
        form = ledger.form(head)
        assert form is not None
        need = ledger.inventory.room(dict(form.amounts))
        for node_id, tasks in head.withhold.footprint:
            if node_id in ledger.inventory.spots:
                kept = Kept(tuple(tasks * amount for amount in need), head.withhold.start)
                also = found.get(node_id)
                found[node_id] = kept if also is None else kept.beside(also)
    return found


def head_standing(ledger: PoolLedger, policy_id: str, head: Request) -> Standing:
    """The standing that a head would have if granted; room is withheld from waiters of that
    standing or less.
    """
    version, known = ledger.heads.get(head.id, (-1, LOWEST))
    if version != ledger.version:
        demand, key = ledger.pool.metered(head.amounts), ledger.queue_of(policy_id, head)
        band = ledger.band(key, demand)
        rights = rights_if_granted(ledger, policy_id, demand, head.preemptible, band)
        known = ledger.standing(key.rank, rights)
        ledger.heads = {head.id: (ledger.version, known)}
    return known


def members(
    state: State,
    ledger: PoolLedger,
    footprint: Footprint,
    amounts: dict[str, int],
    folders: Sequence[str] = (),
) -> list[Member]:
    """The tasks with their nodes and the first free devices of each key (S3). Each task sits at its
    folder, if it can.
    """
    sitting = _sitting(state, ledger, footprint, amounts)
    if len(folders) != len(sitting):
        return sitting
    left = list(sitting)
    found: list[Member | None] = []
    for folder in folders:
        at = next((each for each in left if state.nodes[each.node_id].folder == folder), None)
        found.append(at)
        if at is not None:
            left.remove(at)
    return [replace(at or left.pop(0), task=task) for task, at in enumerate(found)]


def _sitting(
    state: State, ledger: PoolLedger, footprint: Footprint, amounts: dict[str, int]
) -> list[Member]:
    assert ledger.inventory is not None
    found: list[Member] = []
    for node_id, tasks in footprint:
        spot = ledger.inventory.spots[node_id]
        taken = {
            (key, device)
            for holding_id, (held, _) in spot.holdings.items()
            if not held.earmark
            for each in state.allocations[holding_id].members
            if each.node_id == node_id
            for key, devices in each.devices.items()
            for device in devices
        }
        left = {
            key: [each for each in names if (key, each) not in taken]
            for key, names in spot.node.devices.items()
        }
        for _ in range(tasks):
            devices = {}
            for key, names in left.items():
                if amount := amounts.get(key, 0):
                    assert len(names) >= amount, (node_id, key, names)
                    devices[key] = tuple(names[:amount])
                    del names[:amount]
            found.append(Member(len(found), node_id, devices))
    return found

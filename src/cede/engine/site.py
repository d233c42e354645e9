"""The nodes of a pool as one waiter may see them: by its standing, and with some holders away.

What is promised to somebody of lower standing is not in a waiter's way, nor what is promised to
itself; what is withheld for a head of its standing or above is.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace

from cede.engine.books import Books
from cede.engine.fit import rights_if_granted
from cede.engine.ground import Ground
from cede.engine.lane import LaneKey
from cede.engine.listing import Room
from cede.engine.placement import View, place
from cede.engine.reach import Reach
from cede.engine.standing import Standing
from cede.engine.state import State
from cede.model.allocation import Member
from cede.model.shape import Footprint


def site(
    state: State,
    books: Books,
    bound: Standing,
    *,
    promise: bool,
    own: Container[str] = (),
    gone: Iterable[str] = (),
    only: Reach | None = None,
) -> View:
    """What is free for a waiter of standing `bound`, now or to promise, once `gone` are away; on
    all nodes or on some.
    """
    ground = books.ground
    assert ground is not None
    without = {*gone, *_below(books, bound, own)}
    touched: dict[str, None] = {}
    for holding_id in without:
        touched.update((node_id, None) for node_id, _ in books.holdings[holding_id].footprint)
    kept = list(_withheld(state, books, bound, own))
    touched.update((node_id, None) for node_id, _ in kept)
    instead = {
        node_id: _room(ground, node_id, without, promise)
        for node_id in touched
        if ground.spots[node_id].node.usable
    }
    for node_id, room in kept:
        if node_id in instead:
            instead[node_id] = tuple(
                left - amount for left, amount in zip(instead[node_id], room, strict=True)
            )
    return View(ground, ground.promise if promise else ground.now, instead, only)


def reach(books: Books, key: LaneKey, rights: int) -> list[Reach | None]:
    """The nodes where waiters of a lane may sit at these rights, those to be preferred first."""
    return list(_reach(books, key, rights))


def _reach(books: Books, key: LaneKey, rights: int) -> Iterator[Reach | None]:
    """One after the other: what others lend is worked out only for who needs it."""
    assert key.form is not None
    return books.homes.reaches(key.policy_id, rights, key.settled, key.claimant, key.form)


def locate(
    state: State,
    books: Books,
    key: LaneKey,
    rights: int,
    bound: Standing,
    *,
    promise: bool,
    own: Container[str] = (),
    gone: Iterable[str] = (),
) -> Footprint | None:
    """Where a waiter of a lane would sit at these rights, now or to promise; None when nowhere."""
    assert key.form is not None
    for only in _reach(books, key, rights):
        view = site(state, books, bound, promise=promise, own=own, gone=gone, only=only)
        footprint = place(view, key.form)
        if footprint is not None:
            return footprint
    return None


def _room(ground: Ground, node_id: str, without: Container[str], promise: bool) -> Room:
    free, _, promisable = ground.rooms(ground.spots[node_id], without)
    return promisable if promise else tuple(map(min, free, promisable))


def _below(books: Books, bound: Standing, own: Container[str]) -> Iterator[str]:
    """Owners of earmarks that are not in the way."""
    for (_, rank, rights), lane in books.owed.items():
        below = len(lane) and books.standing(rank, rights) < bound
        for owner_id in lane:
            if below or owner_id in own:
                yield owner_id


def _withheld(
    state: State, books: Books, bound: Standing, own: Container[str]
) -> Iterator[tuple[str, Room]]:
    """What is kept on which node for heads that are in the way."""
    assert books.ground is not None
    for head_id, policy_id in books.withheld.items():
        head = state.requests[head_id]
        if head_id in own or head.withhold is None:
            continue
        demand = books.pool.metered(head.amounts)
        key = books.lane_of(policy_id, head)
        band = books.band(key, demand)
        rights = rights_if_granted(books, policy_id, demand, head.preemptible, band)
        if books.standing(key.rank, rights) < bound:
            continue
        form = key.form
        assert form is not None
        need = books.ground.room(dict(form.amounts))
        for node_id, tasks in head.withhold.footprint:
            if node_id in books.ground.spots:
                yield node_id, tuple(tasks * amount for amount in need)


def members(
    state: State,
    books: Books,
    footprint: Footprint,
    amounts: dict[str, int],
    folders: Sequence[str] = (),
) -> list[Member]:
    """Tasks with their nodes and, of each key that has any, the first free devices (S3). Each task
    sits where its folder is, if it can.
    """
    sitting = _sitting(state, books, footprint, amounts)
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
    state: State, books: Books, footprint: Footprint, amounts: dict[str, int]
) -> list[Member]:
    assert books.ground is not None
    found: list[Member] = []
    for node_id, tasks in footprint:
        spot = books.ground.spots[node_id]
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

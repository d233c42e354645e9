"""The account of a pool: every bound on a demand, and how much each of them leaves (law 2).

An allowance is one bound with what it leaves of each key. `headroom` is what all of them leave
together, for searching a queue; `check` is the first that a demand exceeds, for saying why. Both
read the same lists, which `own_bounds`, `share_bound` and `pool_bounds` write. Capacity, use, what
is promised and what is on its way out are added and subtracted here and nowhere else.

Keys that no allowance names are not bounded. An allowance may be negative after an operator lowered
something: then nothing that needs the key fits, and everything else still does (the exception of
S1, S2 and S5). In a pool of nodes a demand must also be placed: `placement.place` says where.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum, auto
from math import floor
from typing import NamedTuple

from cede.engine.ledger.ledger import Level, PoolLedger
from cede.engine.ledger.queue import QueueKey
from cede.engine.ledger.task_groups import ABOVE_ALL
from cede.engine.rights.standing import BORROWED, IN_SHARE, LOWEST, Standing
from cede.model.amounts import Amounts, add_to, plus, within

Room = dict[str, int]

fits = within


class Bound(StrEnum):
    """What keeps a waiter from starting, in the order in which it is asked."""

    QUARANTINE = auto()  # after a restore: what its pool has granted is not known
    DELAY = auto()  # its retry delay
    OWN_PROMISE = auto()  # nothing but time: its capacity is on its way
    TENANT = auto()  # its tenant's quota of nodes
    TASK_GROUP = auto()  # the limit of the request that it is a task of
    OWN_LIMIT = auto()  # its policy's limit
    OWN_RESERVE = auto()  # what its policy reserves, for non-preemptible work
    LIMIT_ABOVE = auto()  # the limit of a policy above its own
    SHARE = auto()  # the share that would cover it: no bound on starting, only on its rights
    FREE = auto()  # what is free in the pool now
    PROMISED = auto()  # what is promised to others of its standing or above
    WITHHELD = auto()  # what is withheld for a blocked head of its standing or above
    PLACEMENT = auto()  # places for its tasks on nodes


class Allowance(NamedTuple):
    """A bound and what it leaves of each key; None where nothing at all fits."""

    bound: Bound
    whose: str  # the policy, task group or request that the bound belongs to
    left: Room | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first bound that a demand exceeds, with its numbers; none if it fits."""

    bound: Bound | None = None
    whose: str = ""
    key: str = ""
    requested: int = 0
    available: int = 0
    retry_at: int | None = None  # when the bound is certainly gone, where that is known

    @property
    def fits(self) -> bool:
        return self.bound is None


FITS = Verdict()


def check(demand: Amounts, allowances: Iterable[Allowance]) -> Verdict:
    """The first of these bounds that a demand exceeds, by the key of which the most is missing."""
    for bound, whose, left in allowances:
        if left is None:
            return Verdict(bound, whose)
        if not fits(demand, left):
            lacks = missing(demand, left)
            key = min(lacks, key=lambda each: (-lacks[each], each))
            return Verdict(bound, whose, key, demand[key], left[key])
    return FITS


def headroom(allowances: Iterable[Allowance]) -> Room | None:
    """What all of these leave together; None where nothing at all fits."""
    room: Room = {}
    for _, _, left in allowances:
        if left is None:
            return None
        if room:
            lower(room, left)
        else:
            room = left.copy()
    return room


def smallest(rooms: Iterable[Room]) -> Room:
    """What all of these rooms leave together."""
    room: Room = {}
    for each in rooms:
        lower(room, each)
    return room


def lower(room: Room, left: Room) -> None:
    """Lower a room to what is left of each key elsewhere."""
    for key, amount in left.items():
        if key not in room or amount < room[key]:
            room[key] = amount


def missing(demand: Amounts, room: Room) -> Amounts:
    """How much more of each key a demand needs than there is."""
    return {key: n - room[key] for key, n in demand.items() if key in room and n > room[key]}


# The policy and those above it ----------------------------------------------------------------


def own_bounds(
    ledger: PoolLedger, key: QueueKey, *, alone: bool = False, promise: bool = False
) -> list[Allowance]:
    """The limits and the reserve of a queue's own policy and task group; unless `alone` also the
    limits above. To `promise` something, a policy's limit leaves what is on its way out.
    """
    policy_id = key.policy_id
    pool, policy = ledger.pool, ledger.policies[policy_id]
    found = []
    if key.limit:
        held = ledger.task_groups.used.get(key.task_group, {})
        left = {name: most - held.get(name, 0) for name, most in key.limit}
        found.append(Allowance(Bound.TASK_GROUP, key.task_group, left))
    if policy.limit:
        # A limit that is not below capacity is none: of what the pool has, a holder on its way out
        # gives back what it holds, to its own policy as well.
        left = limit_room(ledger, policy_id, ledger.used_leaving if promise else None)
        left = {
            name: amount
            for name, amount in left.items()
            if policy.limit[name] < pool.capacity.get(name, 0)
        }
        found.append(Allowance(Bound.OWN_LIMIT, policy_id, left))
    if not key.preemptible:
        left = _reserve_room(ledger, policy_id, pool.capacity)
        found.append(Allowance(Bound.OWN_RESERVE, policy_id, left))
    if not alone:
        for above in ledger.chains[policy_id][1:]:
            if ledger.policies[above].limit:
                found.append(Allowance(Bound.LIMIT_ABOVE, above, limit_room(ledger, above)))
    return found


def limit_room(
    ledger: PoolLedger, policy_id: str, without: Mapping[str, Amounts] | None = None
) -> Room:
    """What a policy's limit leaves beside everything held or promised below it, `without` a part of
    that: what is on its way out (`used_leaving`), or what is only promised (`used_promised`).
    """
    used, gone = ledger.used[policy_id], {} if without is None else without[policy_id]
    limit = ledger.policies[policy_id].limit
    return {key: most - used.get(key, 0) + gone.get(key, 0) for key, most in limit.items()}


def limits_room(
    ledger: PoolLedger, policy_ids: Iterable[str], without: Mapping[str, Amounts]
) -> Room:
    """What the limits of all these policies leave; see `limit_room`."""
    return smallest(limit_room(ledger, each, without) for each in policy_ids)


def taken_of_reserve(ledger: PoolLedger, policy_id: str) -> Amounts:
    """The part of a reserve that non-preemptible work cannot have any more: what other such work
    holds and, where the reserve is the share, what policies below fill first.
    """
    confined = ledger.confined[policy_id]
    below = {} if ledger.fair else ledger.covered_below(ledger.levels[policy_id][0])
    return plus(confined, below) if below else confined


def _reserve_room(ledger: PoolLedger, policy_id: str, keys: Iterable[str]) -> Room:
    """What a reserve leaves for non-preemptible work."""
    reserved, taken = ledger.policies[policy_id].reserved, taken_of_reserve(ledger, policy_id)
    return {key: reserved.get(key, 0) - taken.get(key, 0) for key in keys}


def reserve_left(ledger: PoolLedger, policy_id: str, key: str) -> int:
    """How much of what a policy reserves nothing below it uses."""
    return ledger.policies[policy_id].reserved.get(key, 0) - ledger.used[policy_id].get(key, 0)


def staying(ledger: PoolLedger, policy_id: str) -> Amounts:
    """What is held and promised below a policy and is not on its way out."""
    return _less(ledger.used[policy_id], ledger.used_leaving[policy_id])


def beyond_reserve(ledger: PoolLedger, policy_id: str) -> Room:
    """How much of each key that counts a policy and those below it could lose, and keep what is
    reserved for it.
    """
    held, reserved = staying(ledger, policy_id), ledger.policies[policy_id].reserved
    return {key: max(held.get(key, 0) - reserved.get(key, 0), 0) for key in ledger.counting}


def staying_in(ledger: PoolLedger, task_group: str) -> Amounts:
    """The same for a task group."""
    groups = ledger.task_groups
    return _less(groups.used.get(task_group, {}), groups.leaving.get(task_group, {}))


def _less(used: Amounts, leaving: Amounts) -> Amounts:
    return {key: amount - leaving.get(key, 0) for key, amount in used.items()}


# Shares ---------------------------------------------------------------------------------------


def share_bound(
    ledger: PoolLedger, key: QueueKey, rights: int, band: int, gone: Amounts | None = None
) -> Allowance | None:
    """What the share that gives a queue these rights still covers, with so much of it `gone`; no
    bound for rights that no share gives.
    """
    if rights == BORROWED or ledger.homes.decide or ledger.balance is not None:
        return None
    level = ledger.levels[key.policy_id][IN_SHARE - rights]
    before = goes_before(ledger, key.policy_id, level, band)
    if gone:
        before = [*before, gone]
    return Allowance(Bound.SHARE, level[0], share_room(ledger, level, key.preemptible, before))


def share_room(
    ledger: PoolLedger, level: Level, preemptible: bool, before: Iterable[Amounts] = ()
) -> Room | None:
    """How much more would still be covered at a level; None when nothing would be.

    A new holding comes last in the fill, behind everything held there or below except what it goes
    `before`. Where what is reserved is the share, a non-preemptible one comes only behind other
    non-preemptible ones and what is covered below, and never above its own policy.
    """
    room = _left_at(ledger, level, preemptible, before)
    return room if all(left >= 0 for left in room.values()) else None


def over_share(
    ledger: PoolLedger, level: Level, demand: Amounts, before: Iterable[Amounts] = ()
) -> Amounts:
    """How much of what a level covers must leave so that a preemptible demand is covered there."""
    room = _left_at(ledger, level, True, before)
    over = {key: demand.get(key, 0) - left for key, left in room.items()}
    return {key: amount for key, amount in over.items() if amount > 0}


def _left_at(
    ledger: PoolLedger, level: Level, preemptible: bool, before: Iterable[Amounts]
) -> Room:
    """What a level's share has left; negative where it covers less than is held."""
    policy_id = level[0]
    if not preemptible and not ledger.fair:  # confined to what is reserved, which is its share
        return _reserve_room(ledger, policy_id, ledger.counting)
    share, used, gone = ledger.share_at(level), ledger.used[policy_id], ledger.yielded[policy_id]
    room = {
        key: floor(share.get(key, 0)) - used.get(key, 0) + gone.get(key, 0)
        for key in ledger.counting
    }
    for amounts in before:
        for key in room:
            room[key] += amounts.get(key, 0)
    return room


def goes_before(ledger: PoolLedger, policy_id: str, level: Level, band: int) -> list[Amounts]:
    """What a new holding of this band comes before in the fill: others of its own policy that are
    less safe, for a non-preemptible one all preemptible ones. Above that it is last.
    """
    if not ledger.fair or level[0] != policy_id:
        return []
    found = (ledger.banded.get((policy_id, each)) for each in range(band))
    return [each for each in found if each]


def rights_if_granted(
    ledger: PoolLedger, policy_id: str, demand: Amounts, preemptible: bool, band: int = 0
) -> int:
    """How close to home a demand would be covered; where home is a place, nothing says before it
    is placed. Where fair shares alone decide, who may take from whom is the balance's (`victims`).
    """
    if ledger.balance is not None:
        return IN_SHARE
    if ledger.homes.decide:
        return BORROWED
    levels = ledger.levels[policy_id]
    for distance, level in enumerate(levels if preemptible or ledger.fair else levels[:1]):
        before = goes_before(ledger, policy_id, level, band if preemptible else ABOVE_ALL)
        room = share_room(ledger, level, preemptible, before)
        if room is not None and fits(demand, room):
            return IN_SHARE - distance
    return BORROWED


# The pool -------------------------------------------------------------------------------------


def pool_bounds(ledger: PoolLedger, standing: Standing) -> list[Allowance]:
    """What is free for a waiter of this standing, and beside what is promised to others: one answer
    for all such waiters until something changes.
    """
    version, found = ledger.pool_bounds.get(standing, (-1, []))
    if version != ledger.version:
        found = [Allowance(Bound.FREE, "", free_now(ledger))]
        if ledger.earmarks:  # without any, more may be promised than is free now
            found.append(Allowance(Bound.PROMISED, "", free_beside_returning(ledger, standing)))
        ledger.pool_bounds[standing] = ledger.version, found
    return found


def free_now(ledger: PoolLedger) -> Room:
    """What is physically free; in a pool of nodes, on those that take work."""
    if ledger.inventory is not None:
        return {key: ledger.inventory.free.get(key, 0) for key in ledger.pool.capacity}
    return {key: total - ledger.live.get(key, 0) for key, total in ledger.pool.capacity.items()}


def free_to_promise(ledger: PoolLedger, bound: Standing = LOWEST) -> Room:
    """What no holder that stays has, beside what is promised to waiters of this standing or
    above.
    """
    promised = ledger.earmarked_from(bound) if ledger.earmarks else {}
    if ledger.inventory is not None:
        unheld = ledger.inventory.unheld
        return {key: unheld.get(key, 0) - promised.get(key, 0) for key in ledger.pool.capacity}
    return {
        key: total - ledger.live.get(key, 0) + ledger.leaving.get(key, 0) - promised.get(key, 0)
        for key, total in ledger.pool.capacity.items()
    }


class Returning(NamedTuple):
    """Victims that are alike and come back to the queue in a standing."""

    standing: Standing
    amounts: Amounts  # of each
    allocation_ids: tuple[str, ...]


def returning(ledger: PoolLedger, standing: Standing) -> list[Returning]:
    """Victims that come back above this standing, where that says who comes first."""
    found = []
    for (kind, _), line in ledger.departing.items() if ledger.keeps_order else ():
        policy_id, rank, preemptible, pairs = kind
        amounts = dict(pairs)
        rights = rights_if_granted(ledger, policy_id, amounts, preemptible)
        back = ledger.standing(rank, rights)
        if back > standing:
            found.append(Returning(back, amounts, tuple(each for _, each in line)))
    return found


def kept_for_returning(ledger: PoolLedger, standing: Standing) -> list[Returning]:
    """Of those, the ones that come back above a promise. Whoever takes the room that they will want
    makes them cut that promise, so it is kept (S28).
    """
    if not ledger.departing or not ledger.earmarks:
        return []
    owed = (key for key, owners in ledger.owed.items() if len(owners))
    lowest = min(ledger.standing(rank, rights) for _, rank, rights in owed)
    return returning(ledger, max(standing, lowest))


def free_beside_returning(ledger: PoolLedger, standing: Standing) -> Room:
    """What is free to promise in this standing, less what is kept for victims who come back."""
    room = free_to_promise(ledger, standing)
    for kind in kept_for_returning(ledger, standing):
        for key, amount in kind.amounts.items():
            room[key] -= amount * len(kind.allocation_ids)
    return room


def free_beside_promises(ledger: PoolLedger, request_id: str) -> Room:
    """What is free now and promised to no other request."""
    room = free_now(ledger)
    for key, amount in ledger.earmarked.items():
        room[key] -= amount
    if request_id in ledger.earmarks:
        add_to(room, ledger.earmarks[request_id].amounts)
    return room

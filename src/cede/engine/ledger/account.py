"""The account of a pool: every bound on a demand, and the amounts that each leaves (law 2).

An allowance is one bound with the amount that it leaves of each key. `headroom` is the amount that
all of them leave, for searching a queue; `check` gives the first that a demand exceeds, for the
reason. Both read the same lists, made by `own_bounds`, `share_bound` and `pool_bounds`. Capacity,
use, promises and leaving amounts are added and subtracted here and nowhere else.

Keys that no allowance names are not bounded. An allowance may be negative after an edit lowered a
bound: then no demand for the key fits, and every other demand still does (the exception of S1, S2
and S5). In a pool of nodes a demand must also be placed, by `placement.place`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import NamedTuple

from cede.engine.ledger.ledger import Level, PoolLedger
from cede.engine.ledger.queue import QueueKey
from cede.engine.ledger.task_groups import ABOVE_ALL
from cede.engine.rights.standing import BORROWED, IN_SHARE, LOWEST, Standing
from cede.model.amounts import Amounts, add_to, plus, within

Room = dict[str, int]

fits = within


class Bound(StrEnum):
    """The causes that can keep a waiter from starting, in the order in which they are checked."""

    QUARANTINE = auto()  # after a restore: the grants of its pool are not known
    DELAY = auto()  # its retry delay
    OWN_PROMISE = auto()  # it only waits for its promised capacity
    TENANT = auto()  # its tenant's quota of nodes
    TASK_GROUP = auto()  # the limit of the request that it is a task of
    OWN_LIMIT = auto()  # its policy's limit
    OWN_RESERVE = auto()  # its policy's reserve, for non-preemptible work
    LIMIT_ABOVE = auto()  # the limit of a policy above its own
    SHARE = auto()  # the share that would cover it: no bound on starting, only on its rights
    FREE = auto()  # the free capacity of the pool
    PROMISED = auto()  # promises to others of its standing or above
    WITHHELD = auto()  # room withheld for a blocked head of its standing or above
    PLACEMENT = auto()  # places for its tasks on nodes


class Allowance(NamedTuple):
    """A bound and the amount that it leaves of each key; None where nothing at all fits."""

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
    retry_at: int | None = None  # the instant at which the bound is certainly gone, if known

    @property
    def fits(self) -> bool:
        return self.bound is None


FITS = Verdict()


def check(demand: Amounts, allowances: Iterable[Allowance]) -> Verdict:
    """The first of these bounds that a demand exceeds, with the key that is short by the most."""
    for bound, whose, left in allowances:
        if left is None:
            return Verdict(bound, whose)
        if not fits(demand, left):
            lacks = missing(demand, left)
            key = min(lacks, key=lambda each: (-lacks[each], each))
            return Verdict(bound, whose, key, demand[key], left[key])
    return FITS


def headroom(allowances: Iterable[Allowance]) -> Room | None:
    """The amounts that all of these leave together; None where nothing at all fits."""
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
    """The least amount of each key in these rooms."""
    room: Room = {}
    for each in rooms:
        lower(room, each)
    return room


def lower(room: Room, left: Room) -> None:
    """Lower a room to the amount of each key in another."""
    for key, amount in left.items():
        if key not in room or amount < room[key]:
            room[key] = amount


def missing(demand: Amounts, room: Room) -> Amounts:
    """The amounts by which a demand exceeds a room."""
    return {key: n - room[key] for key, n in demand.items() if key in room and n > room[key]}


# The policy and those above it ----------------------------------------------------------------


def own_bounds(
    ledger: PoolLedger, key: QueueKey, *, alone: bool = False, promise: bool = False
) -> list[Allowance]:
    """The limits and the reserve of a queue's own policy and task group; unless `alone` also the
    limits above. For a `promise`, leaving holders do not count against the policy's limit.
    """
    policy_id = key.policy_id
    pool, policy = ledger.pool, ledger.policies[policy_id]
    found = []
    if key.limit:
        held = ledger.task_groups.used.get(key.task_group, {})
        left = {name: most - held.get(name, 0) for name, most in key.limit}
        found.append(Allowance(Bound.TASK_GROUP, key.task_group, left))
    if policy.limit:
        # A limit that is not below capacity does not bind: a leaving holder gives its amounts back
        # to the pool, and so to its own policy as well.
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
    """The room under a policy's limit beside all that is held or promised below it, `without` a
    part of that: leaving holdings (`used_leaving`) or promises (`used_promised`).
    """
    used, gone = ledger.used[policy_id], {} if without is None else without[policy_id]
    limit = ledger.policies[policy_id].limit
    return {key: most - used.get(key, 0) + gone.get(key, 0) for key, most in limit.items()}


def limits_room(
    ledger: PoolLedger, policy_ids: Iterable[str], without: Mapping[str, Amounts]
) -> Room:
    """The room under the limits of all these policies; see `limit_room`."""
    return smallest(limit_room(ledger, each, without) for each in policy_ids)


def taken_of_reserve(ledger: PoolLedger, policy_id: str) -> Amounts:
    """The part of a reserve that non-preemptible work cannot have any more: the holdings of other
    such work and, where the reserve is the share, those that policies below fill first.
    """
    confined = ledger.confined[policy_id]
    below = {} if ledger.fair else ledger.covered_below(ledger.levels[policy_id][0])
    return plus(confined, below) if below else confined


def _reserve_room(ledger: PoolLedger, policy_id: str, keys: Iterable[str]) -> Room:
    """The room that a reserve leaves for non-preemptible work."""
    reserved, taken = ledger.policies[policy_id].reserved, taken_of_reserve(ledger, policy_id)
    return {key: reserved.get(key, 0) - taken.get(key, 0) for key in keys}


def reserve_left(ledger: PoolLedger, policy_id: str, key: str) -> int:
    """The unused part of a policy's reserve."""
    return ledger.policies[policy_id].reserved.get(key, 0) - ledger.used[policy_id].get(key, 0)


def staying(ledger: PoolLedger, policy_id: str) -> Amounts:
    """The amounts held and promised below a policy, without leaving holders."""
    return _less(ledger.used[policy_id], ledger.used_leaving[policy_id])


def beyond_reserve(ledger: PoolLedger, policy_id: str) -> Room:
    """The amount of each key that counts that a policy with those below it could lose and keep its
    reserve.
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
    """The room in the share that gives a queue these rights, with the amounts `gone` removed; None
    for rights that no share gives.
    """
    if rights == BORROWED or ledger.homes.decide or ledger.balance is not None:
        return None
    level = ledger.levels[key.policy_id][IN_SHARE - rights]
    before = goes_before(ledger, key.policy_id, level, band)
    if gone:
        before = [*before, gone]
    return Allowance(Bound.SHARE, level[0], share_room(ledger, level, key.preemptible, before))


def share_room(
    ledger: PoolLedger, level: Level, preemptible: bool, before: Sequence[Amounts] = ()
) -> Room | None:
    """The amounts that would still be covered at a level; None if nothing would be.

    A new holding comes last in the fill, behind all holdings there or below but those that it goes
    `before`. Where the reserve is the share, a non-preemptible one comes only behind other
    non-preemptible ones and those covered below, and never above its own policy.
    """
    room = _left_at(ledger, level, preemptible, before)
    return None if room and min(room.values()) < 0 else room


def over_share(
    ledger: PoolLedger, level: Level, demand: Amounts, before: Sequence[Amounts] = ()
) -> Amounts:
    """The amounts that must leave a level so that a preemptible demand is covered there."""
    room = _left_at(ledger, level, True, before)
    over = {key: demand.get(key, 0) - left for key, left in room.items()}
    return {key: amount for key, amount in over.items() if amount > 0}


def _left_at(
    ledger: PoolLedger, level: Level, preemptible: bool, before: Sequence[Amounts]
) -> Room:
    """The room in a level's share; negative where it covers less than is held."""
    policy_id = level[0]
    if not preemptible and not ledger.fair:  # confined to the reserve, which is its share
        return _reserve_room(ledger, policy_id, ledger.counting)
    left = ledger.left_of_share(level)
    if not before:
        return left
    room = dict(left)
    for amounts in before:
        for key in room:
            room[key] += amounts.get(key, 0)
    return room


def goes_before(ledger: PoolLedger, policy_id: str, level: Level, band: int) -> list[Amounts]:
    """The holdings that a new holding of this band goes before in the fill: less safe ones of its
    own policy, for a non-preemptible one all preemptible ones. In shares above it comes last.
    """
    if not ledger.fair or level[0] != policy_id:
        return []
    found = (ledger.banded.get((policy_id, each)) for each in range(band))
    return [each for each in found if each]


def rights_if_granted(
    ledger: PoolLedger, policy_id: str, demand: Amounts, preemptible: bool, band: int = 0
) -> int:
    """The rights of a demand once granted: how close to home a share would cover it. Where home is
    a place, that is not known before it is placed; where fair shares alone decide, the balance
    decides about preemptions (`victims`).
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
    """The free capacity, and that beside promises, for a waiter of this standing: one answer for
    all such waiters until the ledger changes.
    """
    version, found = ledger.pool_bounds.get(standing, (-1, []))
    if version != ledger.version:
        found = [Allowance(Bound.FREE, "", free_now(ledger))]
        if ledger.earmarks:  # without promises, free capacity is the tighter bound
            found.append(Allowance(Bound.PROMISED, "", free_beside_returning(ledger, standing)))
        ledger.pool_bounds[standing] = ledger.version, found
    return found


def free_now(ledger: PoolLedger) -> Room:
    """The physically free capacity; in a pool of nodes, on those that take work."""
    if ledger.inventory is not None:
        return {key: ledger.inventory.free.get(key, 0) for key in ledger.pool.capacity}
    return {key: total - ledger.live.get(key, 0) for key, total in ledger.pool.capacity.items()}


def free_to_promise(ledger: PoolLedger, bound: Standing = LOWEST) -> Room:
    """Capacity minus staying use, and minus promises to waiters of this standing or above."""
    promised = ledger.earmarked_from(bound) if ledger.earmarks else {}
    if ledger.inventory is not None:
        unheld = ledger.inventory.unheld
        return {key: unheld.get(key, 0) - promised.get(key, 0) for key in ledger.pool.capacity}
    return {
        key: total - ledger.live.get(key, 0) + ledger.leaving.get(key, 0) - promised.get(key, 0)
        for key, total in ledger.pool.capacity.items()
    }


class Returning(NamedTuple):
    """Victims that are alike and come back to the queue with one standing."""

    standing: Standing
    amounts: Amounts  # of each
    allocation_ids: tuple[str, ...]


def returning(ledger: PoolLedger, standing: Standing) -> list[Returning]:
    """Victims that come back above this standing, where standing and age decide the order."""
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
    """Of those, the victims that come back above a promise. Without room of their own they would
    cut that promise, so room is kept for them (S28).
    """
    if not ledger.departing or not ledger.earmarks:
        return []
    owed = (key for key, owners in ledger.owed.items() if len(owners))
    lowest = min(ledger.standing(rank, rights) for _, rank, rights in owed)
    return returning(ledger, max(standing, lowest))


def free_beside_returning(ledger: PoolLedger, standing: Standing) -> Room:
    """The capacity free to promise at this standing, less the room kept for returning victims."""
    room = free_to_promise(ledger, standing)
    for kind in kept_for_returning(ledger, standing):
        for key, amount in kind.amounts.items():
            room[key] -= amount * len(kind.allocation_ids)
    return room


def free_beside_promises(ledger: PoolLedger, request_id: str) -> Room:
    """The capacity that is free now and promised to no other request."""
    room = free_now(ledger)
    for key, amount in ledger.earmarked.items():
        room[key] -= amount
    if request_id in ledger.earmarks:
        add_to(room, ledger.earmarks[request_id].amounts)
    return room

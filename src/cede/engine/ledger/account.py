"""Does this demand fit here now? The one answer (law 2): granting, preempting, explaining and the
audit all ask it.

A room is an upper bound per key; a demand fits if it is within every room that applies to it:
`own_room` is what the waiter's own policy still allows, `free_room` what the pool has. Keys a pool
does not count are in no room and so never in the way. A room may be negative after an operator
lowered something: then nothing that needs the key fits, and everything else still does (the
exception of S1, S2 and S5). In a pool of nodes a demand must also be placed: `placement.place` says
where.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import floor

from cede.engine.ledger.ledger import Level, PoolLedger
from cede.engine.ledger.queue import QueueKey
from cede.engine.ledger.task_groups import ABOVE_ALL
from cede.engine.rights.standing import BORROWED, IN_SHARE, Standing
from cede.model.amounts import Amounts, plus, within

Room = dict[str, int]

fits = within


def own_room(ledger: PoolLedger, key: QueueKey, *, alone: bool = False) -> Room:
    """What a policy, or one task group of it, may still hold: their limits and, for non-preemptible
    work, the reserve; unless `alone` also what the limits above it leave.
    """
    policy_id, preemptible = key.policy_id, key.preemptible
    pool, policy = ledger.pool, ledger.policies[policy_id]
    used = ledger.used[policy_id]
    room = {}
    for name, capacity in pool.capacity.items():
        # A limit that is not below capacity is none: of what the pool has, who is on its way out
        # gives back what he holds, to his own policy as well.
        most = policy.limit.get(name, capacity)
        room[name] = most - used.get(name, 0) if most < capacity else capacity
    for name, most in key.limit:
        held = ledger.task_groups.used.get(key.task_group, {})
        if name in room:
            room[name] = min(room[name], most - held.get(name, 0))
    if not alone:
        for name, left in limits_above(ledger, policy_id, leaving=False).items():
            room[name] = min(room[name], left)
    if not preemptible:
        taken = taken_of_reserve(ledger, policy_id)
        for name in room:
            room[name] = min(room[name], policy.reserved.get(name, 0) - taken.get(name, 0))
    return room


def taken_of_reserve(ledger: PoolLedger, policy_id: str) -> Amounts:
    """What of a reserve non-preemptible work cannot have any more: what other such work holds, and
    where the reserve is the share, what those below fill first.
    """
    confined = ledger.confined[policy_id]
    below = {} if ledger.fair else ledger.covered_below(ledger.levels[policy_id][0])
    return plus(confined, below) if below else confined


def limits_above(ledger: PoolLedger, policy_id: str, *, leaving: bool, own: bool = False) -> Room:
    """What the limits of a policy's ancestors leave, and with `own` its own; with `leaving` once
    those have left.
    """
    room: Room = {}
    for above in ledger.chains[policy_id][0 if own else 1 :]:
        used, gone = ledger.used[above], ledger.used_leaving[above] if leaving else {}
        for key, limit in ledger.policies[above].limit.items():
            left = limit - used.get(key, 0) + gone.get(key, 0)
            room[key] = min(left, room.get(key, left))
    return room


def held_above(ledger: PoolLedger, policy_id: str) -> Room:
    """What the limits of a policy and its ancestors leave beside what is really held: whoever was
    promised capacity starts when this, too, has room.
    """
    room: Room = {}
    for above in ledger.chains[policy_id]:
        used, promised = ledger.used[above], ledger.used_promised[above]
        for key, limit in ledger.policies[above].limit.items():
            left = limit - used.get(key, 0) + promised.get(key, 0)
            room[key] = min(left, room.get(key, left))
    return room


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
        reserved, taken = ledger.policies[policy_id].reserved, taken_of_reserve(ledger, policy_id)
        return {key: reserved.get(key, 0) - taken.get(key, 0) for key in ledger.counting}
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
    is placed.
    """
    if ledger.homes.decide:
        return BORROWED
    levels = ledger.levels[policy_id]
    for distance, level in enumerate(levels if preemptible or ledger.fair else levels[:1]):
        before = goes_before(ledger, policy_id, level, band if preemptible else ABOVE_ALL)
        room = share_room(ledger, level, preemptible, before)
        if room is not None and fits(demand, room):
            return IN_SHARE - distance
    return BORROWED


def free_now(ledger: PoolLedger) -> Room:
    """What is physically free; in a pool of nodes, on those that take work."""
    if ledger.inventory is not None:
        return {key: ledger.inventory.free.get(key, 0) for key in ledger.pool.capacity}
    return {key: total - ledger.live.get(key, 0) for key, total in ledger.pool.capacity.items()}


def free_to_promise(ledger: PoolLedger, bound: Standing) -> Room:
    """What nobody holds who stays, and nobody of this standing or above was promised."""
    promised = ledger.earmarked_from(bound) if ledger.earmarks else {}
    if ledger.inventory is not None:
        unheld = ledger.inventory.unheld
        return {key: unheld.get(key, 0) - promised.get(key, 0) for key in ledger.pool.capacity}
    return {
        key: total - ledger.live.get(key, 0) + ledger.leaving.get(key, 0) - promised.get(key, 0)
        for key, total in ledger.pool.capacity.items()
    }


def smallest(rooms: Iterable[Room | None]) -> Room:
    """The room that is within all of these."""
    result: Room = {}
    for room in rooms:
        for key, left in (room or {}).items():
            result[key] = min(left, result.get(key, left))
    return result

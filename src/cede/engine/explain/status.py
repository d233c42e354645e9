"""Every pool at a glance: what each policy has reserved, uses, borrows, lends and waits for.

Used is what its requests hold; borrowed is the part of it that no share covers, as the ledger
judges every holding. Lent is the part of the reserve that its owner does not use and that is not
free: others hold it. A promise to a waiter is not use.
"""

from __future__ import annotations

from typing import Any

from cede.engine.ledger.ledger import PoolLedger
from cede.engine.rights.standing import BORROWED
from cede.engine.state.state import State
from cede.model.amounts import Amounts, add_to
from cede.model.durations import seconds

Sums = dict[str, dict[str, int]]


def status(state: State, now: int) -> list[dict[str, Any]]:
    """All pools by name, each with its policies by name."""
    pools = sorted(state.pools.values(), key=lambda pool: pool.name)
    return [_pool(state.ledgers[pool.id], now) for pool in pools]


def _pool(ledger: PoolLedger, now: int) -> dict[str, Any]:
    pool = ledger.pool
    used, borrowed = _held(ledger)
    occupied: dict[str, int] = {}
    for each in used.values():
        add_to(occupied, each)
    free = {key: max(0, most - occupied.get(key, 0)) for key, most in pool.capacity.items()}
    lent = _lent(ledger, used, free)
    waiting, oldest = _waiting(ledger)
    policies = sorted(ledger.policies.values(), key=lambda policy: (policy.name, policy.id))
    return {
        "id": pool.id,
        "name": pool.name,
        "capacity": dict(pool.capacity),
        "used": occupied,
        "free": free,
        "waiting": sum(waiting.values()),
        "oldest_wait": _since(min(oldest.values(), default=None), now),
        "policies": [
            {
                "id": policy.id,
                "component": policy.subject.name,
                "component_type": policy.subject.type,
                "parent_id": policy.parent_id,
                "reserved": dict(policy.reserved),
                "limit": None if policy.limit is None else dict(policy.limit),
                "used": used[policy.id],
                "borrowed": borrowed[policy.id],
                "lent": lent[policy.id],
                "waiting": waiting.get(policy.id, 0),
                "oldest_wait": _since(oldest.get(policy.id), now),
            }
            for policy in policies
        ],
    }


def _held(ledger: PoolLedger) -> tuple[Sums, Sums]:
    """The amounts that each policy's requests hold, and the borrowed part of them."""
    used: Sums = {policy_id: {} for policy_id in ledger.policies}
    borrowed: Sums = {policy_id: {} for policy_id in ledger.policies}
    for holding in ledger.holdings.values():
        if holding.earmark:
            continue
        add_to(used[holding.policy_id], holding.amounts)
        if ledger.rights(holding.id) == BORROWED:
            add_to(borrowed[holding.policy_id], holding.amounts)
    return used, borrowed


def _lent(ledger: PoolLedger, used: Sums, free: Amounts) -> Sums:
    """The part of every policy's own reserve that others hold, in proportion to what each does not
    use.

    A reserve below a policy is not the policy's own.
    """
    idle: Sums = {}
    for policy_id, policy in ledger.policies.items():
        below = [each for each in ledger.policies.values() if each.parent_id == policy_id]
        own = {
            key: many - sum(each.reserved.get(key, 0) for each in below)
            for key, many in policy.reserved.items()
        }
        idle[policy_id] = {
            key: max(0, many - used[policy_id].get(key, 0)) for key, many in own.items()
        }
    found: Sums = {policy_id: {} for policy_id in ledger.policies}
    for key in sorted(ledger.pool.capacity):
        for policy_id, many in _parts(
            {id_: each.get(key, 0) for id_, each in idle.items()}, free.get(key, 0)
        ):
            found[policy_id][key] = many
    return found


def _parts(idle: dict[str, int], free: int) -> list[tuple[str, int]]:
    """The lent amount of each policy: all that is unused and not free, in proportion, in whole
    units.
    """
    total = sum(idle.values())
    lent = max(0, total - free)
    if not lent:
        return []
    parts, given = [], 0
    counted = 0
    for policy_id in sorted(idle):
        counted += idle[policy_id]
        upto = lent * counted // total
        if upto > given:
            parts.append((policy_id, upto - given))
        given = upto
    return parts


def _waiting(ledger: PoolLedger) -> tuple[dict[str, int], dict[str, int]]:
    """The number of waiters of each policy, and the submit time of its oldest."""
    waiting: dict[str, int] = {}
    oldest: dict[str, int] = {}
    for key, queue in ledger.queues.items():
        if queue.oldest is None:
            continue
        waiting[key.policy_id] = waiting.get(key.policy_id, 0) + len(queue)
        first = queue.oldest[0]
        oldest[key.policy_id] = min(first, oldest.get(key.policy_id, first))
    return waiting, oldest


def _since(instant: int | None, now: int) -> float | None:
    return None if instant is None else seconds(max(0, now - instant))

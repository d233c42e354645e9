"""Finds and drops earmarks that no longer hold (law 4, L9)."""

from __future__ import annotations

from cede.engine.ledger.account import free_to_promise, limit_room, limits_room, own_bounds
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.queue import QueueKey
from cede.engine.rights.cover import Holding
from cede.engine.state.state import State
from cede.model.copying import replace


def drop_dead(state: State, ledger: PoolLedger) -> bool:
    """Drop the earmarks that an edit or a lost holder made impossible; return whether there were
    any.
    """
    died = False
    if state.fresh[ledger.pool.id]:
        state.fresh[ledger.pool.id] = False
        for owner_id in [each for each in ledger.earmarks if not _still_allowed(ledger, each)]:
            drop(state, owner_id)
            died = True
    return settle(state, ledger, own_limits=True) or died


def _still_allowed(ledger: PoolLedger, owner_id: str) -> bool:
    holding = ledger.earmarks[owner_id]
    policy_id, queue = holding.policy_id, QueueKey(holding.policy_id, holding.preemptible)
    rooms = [each.left or {} for each in own_bounds(ledger, queue, alone=True, promise=True)]
    rooms.append(limits_room(ledger, ledger.chains[policy_id][1:], ledger.used_leaving))
    # The rooms count the earmark itself as used.
    return all(left >= 0 for room in rooms for key, left in room.items() if key in holding.amounts)


def settle(state: State, ledger: PoolLedger, *, own_limits: bool = False) -> bool:
    """Drop the lowest, newest earmarks until no more is promised than there is; return whether any
    was dropped. A promise is made within its policy's own limit, so that limit is checked only
    (`own_limits`) when a holder that was leaving may have stayed.
    """
    died = False
    while ledger.earmarks and (broken := _broken(ledger, own_limits)):
        last = min(broken, key=lambda each: (*ledger.last_served(each), -each.index, each.id))
        drop(state, last.id)
        died = True
    return died


def _broken(ledger: PoolLedger, own_limits: bool) -> list[Holding]:
    """The earmarks of which one must be dropped: below a limit or on a node that is overpromised,
    on a node out of service, or of a key that is overpromised.
    """
    limited = dict.fromkeys(ledger.limits)
    if own_limits:
        owing = (pid for pid, amounts in ledger.used_promised.items() if amounts)
        limited |= dict.fromkeys(pid for pid in owing if ledger.policies[pid].limit)
    for policy_id in limited:
        for key, left in limit_room(ledger, policy_id, ledger.used_leaving).items():
            if left < 0:
                marks = [each for each in ledger.earmarks.values() if key in each.amounts]
                if below := [e for e in marks if policy_id in ledger.chains[e.policy_id]]:
                    return below
    inventory = ledger.inventory
    if inventory is None:
        if not (over := _overpromised(ledger)):
            return []
        return [each for each in ledger.earmarks.values() if over & each.amounts.keys()]
    for node_id in inventory.broken:
        return [held for held, _ in inventory.spots[node_id].holdings.values() if held.earmark]
    return []


def _overpromised(ledger: PoolLedger) -> set[str]:
    """The promised keys of which the staying use and the promises exceed the capacity."""
    left = free_to_promise(ledger)
    return {key for key in ledger.earmarked if left.get(key, -1) < 0}


def drop(state: State, owner_id: str) -> None:
    request = state.requests[owner_id]
    assert request.earmark is not None, request
    state.put(replace(request, earmark=None))
    state.emit("earmark_died", request_id=owner_id, pool_id=request.earmark.pool_id)

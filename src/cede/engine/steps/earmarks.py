"""Earmarks that no longer hold: broken promises are found, dropped, and the victims let go (law 4,
L9).
"""

from __future__ import annotations

from cede.engine.ledger.account import (
    fits,
    free_to_promise,
    limit_room,
    limits_room,
    own_bounds,
    rights_if_granted,
)
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.queue import QueueKey
from cede.engine.rights.cover import Holding
from cede.engine.rights.standing import Standing
from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.copying import replace
from cede.model.lifecycle import AllocationState, RequestStatus


def drop_dead(state: State, ledger: PoolLedger) -> bool:
    """Drop the earmarks that an edit or a lost holder made impossible; whether there were any."""
    died = False
    if state.fresh[ledger.pool.id]:
        state.fresh[ledger.pool.id] = False
        for owner_id in [each for each in ledger.earmarks if not _still_allowed(ledger, each)]:
            drop(state, owner_id)
            died = True
    return settle(state, ledger) or died


def _still_allowed(ledger: PoolLedger, owner_id: str) -> bool:
    holding = ledger.earmarks[owner_id]
    policy_id, queue = holding.policy_id, QueueKey(holding.policy_id, holding.preemptible)
    rooms = [each.left or {} for each in own_bounds(ledger, queue, alone=True)]
    rooms.append(limits_room(ledger, ledger.chains[policy_id][1:], ledger.used_leaving))
    # Its own earmark is counted in.
    return all(left >= 0 for room in rooms for key, left in room.items() if key in holding.amounts)


def settle(state: State, ledger: PoolLedger) -> bool:
    """Drop the lowest, newest earmarks until no more is promised than there is; whether any had to
    go.
    """
    died = False
    while ledger.earmarks and (broken := _broken(ledger)):
        last = min(broken, key=lambda each: (*ledger.last_served(each), -each.index, each.id))
        drop(state, last.id)
        died = True
    return died


def _broken(ledger: PoolLedger) -> list[Holding]:
    """The earmarks of which one must go: below a limit or on a node that is overpromised, on a node
    out of service, or of a key that is overpromised.
    """
    for policy_id in ledger.limits:
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
    """The keys of which more is held to stay and promised than there is, and of which some is
    promised.
    """
    left = free_to_promise(ledger)
    return {key for key in ledger.earmarked if left.get(key, -1) < 0}


def drop(state: State, owner_id: str) -> None:
    request = state.requests[owner_id]
    assert request.earmark is not None, request
    state.put(replace(request, earmark=None))
    state.emit("earmark_died", request_id=owner_id, pool_id=request.earmark.pool_id)


def let_victims_go(state: State, *, on_nodes: bool = False) -> bool:
    """Let victims that were not told yet go on, where nobody was promised their capacity: their
    beneficiary neither, which may have found it on other nodes. Or only those `on_nodes`.

    One that was cancelled meanwhile stops all the same.
    """
    victims: list[Allocation] = []
    for owner_id in state.unearmarked:
        untold = [state.allocations[each] for each in state.untold.get(owner_id, ())]
        victims += [each for each in untold if not state.requests[each.request_id].cancelled]
    if on_nodes:
        victims = [each for each in victims if each.members]
    else:
        state.unearmarked.clear()

    def worth(victim: Allocation) -> tuple[int, int, int]:
        first, second = _standing_again(state.ledgers[victim.pool_id], victim)
        return (-first, -second, victim.index)

    went_on = False
    for victim in sorted(victims, key=worth):
        if _has_room_again(state.ledgers[victim.pool_id], victim):
            _go_on(state, victim)
            went_on = True
    return went_on


def _standing_again(ledger: PoolLedger, victim: Allocation) -> Standing:
    """Where a victim would stand if it went on."""
    holding = ledger.holdings[victim.id]
    if not holding.yields or ledger.homes.decide:
        return ledger.standing_of(victim.id)
    rights = rights_if_granted(ledger, victim.policy_id, holding.amounts, holding.preemptible)
    return ledger.standing(holding.rank, rights)


def _has_room_again(ledger: PoolLedger, victim: Allocation) -> bool:
    """Whether nobody was promised what a victim holds."""
    holding = ledger.holdings[victim.id]
    inventory = ledger.inventory
    chain = ledger.chains[victim.policy_id]
    # Others below its policy may have been promised what the limit leaves without it.
    bounding = chain if victim.policy_id in ledger.limits else chain[1:]
    if not fits(holding.amounts, limits_room(ledger, bounding, ledger.used_leaving)):
        return False
    if inventory is None:
        return fits(holding.amounts, free_to_promise(ledger))
    need = inventory.room(holding.each)
    return all(
        tasks * amount <= left
        for node_id, tasks in holding.footprint
        for amount, left in zip(need, inventory.spots[node_id].promise[0], strict=True)
    )


def _go_on(state: State, victim: Allocation) -> None:
    # What is asked to save runs, whatever is known of its start: its node may have been away then.
    waits = victim.state is AllocationState.STOPPING and victim.started_at is None
    running = AllocationState.GRANTED if waits else AllocationState.RUNNING
    free = {"deadline": None, "taken_for": None, "reason": None, "told": False}
    free |= {"stop_progress": None}
    state.put(replace(victim, state=running, **free))  # type: ignore[arg-type]
    request = state.requests[victim.request_id]
    state.put(replace(request, status=RequestStatus.ALLOCATED, reason=None))
    state.emit("goes_on", request_id=request.id, pool_id=victim.pool_id)

"""The queue of a pool as a list: every waiter at the place where it stands now.

Standing is what each waiter would have if it were granted at this moment; a grant or an end moves
others. Deciding never asks this: a pass walks its streams and looks at nobody it need not.
"""

from __future__ import annotations

from typing import Any

from cede.engine.ledger.account import rights_if_granted
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.queue.cursor import order
from cede.engine.rights.standing import Standing
from cede.engine.state.state import State
from cede.model.amounts import Amounts
from cede.model.policy import Policy
from cede.model.request import Request

# Counting a place beyond this would make a reader slow down the writer.
PLACE_MAX = 10_000


def place_of(state: State, ledger: PoolLedger, request: Request, policy: Policy) -> int | None:
    """Its place in this pool's queue, from 1; None beyond what is worth counting."""
    if _length(ledger) > PLACE_MAX:
        return None
    demand = ledger.pool.metered(request.amounts)
    mine = _order(ledger, request, policy.id, demand)
    return 1 + len([1 for other, _ in _orders(state, ledger) if other < mine])


def in_order(state: State, pool_id: str) -> list[str] | None:
    """The ids of a pool's waiters, the next one first; None beyond what is worth sorting."""
    ledger = state.ledgers[pool_id]
    if _length(ledger) > PLACE_MAX:
        return None
    return [request_id for _, request_id in sorted(_orders(state, ledger))]


def as_granted(
    ledger: PoolLedger, request: Request, policy_id: str, demand: Amounts
) -> tuple[int, Standing]:
    """The rights and the standing that a waiter would have."""
    key = ledger.queue_of(policy_id, request)
    band = ledger.band(key, demand)
    rights = rights_if_granted(ledger, policy_id, demand, request.preemptible, band)
    return rights, ledger.standing(key.rank, rights)


def _length(ledger: PoolLedger) -> int:
    return sum(map(len, ledger.queues.values()))


def _orders(state: State, ledger: PoolLedger) -> list[tuple[Any, str]]:
    return [
        (_order(ledger, state.requests[id_], at.policy_id, queue.demand(id_)), id_)
        for at, queue in ledger.queues.items()
        for id_ in queue
    ]


def _order(ledger: PoolLedger, request: Request, policy_id: str, demand: Amounts) -> Any:
    _, standing = as_granted(ledger, request, policy_id, demand)
    satisfaction = ledger.satisfaction(ledger.queue_of(policy_id, request))
    return order(standing, (*request.age, request.id), satisfaction)

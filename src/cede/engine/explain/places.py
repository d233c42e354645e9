"""The queue of a pool as a list: every waiter at the place where it stands now.

Standing is what each waiter would have if it were granted at this moment; a grant or an end moves
others. Deciding never asks this: a pass walks its streams and looks at nobody it need not.
"""

from __future__ import annotations

from collections.abc import Iterator

from cede.engine.ledger.account import rights_if_granted
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.queue import Queue, QueueKey
from cede.engine.queue.cursor import Order, order
from cede.engine.rights.standing import Age, Standing
from cede.engine.state.state import State
from cede.model.amounts import Amounts
from cede.model.request import Request

# A child of the server puts 20,000 into order in a tenth of a second.
PLACE_MAX = 100_000


def in_order(state: State, pool_id: str) -> list[str] | None:
    """The ids of a pool's waiters, the next one first; None beyond what is worth sorting."""
    ledger = state.ledgers[pool_id]
    if _length(ledger) > PLACE_MAX:
        return None
    alike: dict[tuple[int, int, tuple[float, ...]], list[Age]] = {}
    for found, _, _ in orders(ledger):
        alike.setdefault(found[:3], []).append(found[3])
    return [age[2] for first in sorted(alike) for age in sorted(alike[first])]


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


def orders(ledger: PoolLedger) -> Iterator[tuple[Order, QueueKey, Amounts]]:
    """Every waiter's place in the one order, with its queue and what it asks for.

    Waiters of one queue that ask for the same differ by their age alone, so the rest of the order
    is worked out once for all of them.
    """
    for at, queue in ledger.queues.items():
        known: dict[tuple[tuple[str, int], ...], Order] = {}
        for age in queue.ages():
            demand = queue.demand(age[2])
            asked = tuple(demand.items())
            first = known.get(asked)
            if first is None:
                first = known[asked] = _order(ledger, at, queue, age)
            yield (first[0], first[1], first[2], age), at, demand


def _order(ledger: PoolLedger, at: QueueKey, queue: Queue, age: Age) -> Order:
    demand = queue.demand(age[2])
    band = ledger.band(at, demand)
    rights = rights_if_granted(ledger, at.policy_id, demand, at.preemptible, band)
    return order(ledger.standing(at.rank, rights), age, ledger.satisfaction(at))


def order_of(ledger: PoolLedger, request: Request, policy_id: str, demand: Amounts) -> Order:
    """Of one waiter."""
    _, standing = as_granted(ledger, request, policy_id, demand)
    satisfaction = ledger.satisfaction(ledger.queue_of(policy_id, request))
    return order(standing, (*request.age, request.id), satisfaction)

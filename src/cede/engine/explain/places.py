"""The queue of a pool as a list: every waiter at its present place.

Its standing is what each waiter would have if it were granted at this moment; a grant or an end
moves others. Passes do not use this: they walk their streams and skip most waiters. The list is
made only as far as it is read, so the first places are cheap.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from cede.engine.ledger.account import rights_if_granted
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.queue import BEGINNING, QueueKey
from cede.engine.queue.cursor import Order, order
from cede.engine.rights.standing import BORROWED, IN_SHARE, Age, Standing
from cede.model.amounts import Amounts
from cede.model.request import Request

# A child process of the server sorts 20,000 in a tenth of a second.
PLACE_MAX = 100_000

_Rights = Callable[[Amounts], int]
# An order and the queue. Ages differ, so that queues are never compared.
_Place = tuple[int, int, tuple[float, ...], Age, QueueKey]


def in_order(ledger: PoolLedger) -> Iterator[tuple[Order, QueueKey]]:
    """A pool's waiters in order, each with its queue."""
    every = (each for at in ledger.queues for each in _levels(ledger, at))
    return (
        ((above, rank, satisfaction, age), at)
        for above, rank, satisfaction, age, at in heapq.merge(*every)
    )


def length(ledger: PoolLedger) -> int:
    """The number of a pool's waiters."""
    return sum(map(len, ledger.queues.values()))


def _levels(ledger: PoolLedger, at: QueueKey) -> Iterator[Iterator[_Place]]:
    """The waiters of one queue by the rights that they would have, each level by age."""
    queue = ledger.queues[at]
    if not len(queue):
        return
    rights_of = _rights_in(ledger, at)
    if ledger.balance is not None or ledger.homes.decide or not ledger.counting:
        yield _at_level(ledger, at, rights_of(queue.least))
        return
    # A larger demand has no higher rights; inside a task group that does not hold.
    highest = IN_SHARE if ledger.fair and at.task_group else rights_of(queue.least)
    if highest == BORROWED:
        yield _at_level(ledger, at, BORROWED)
        return
    for rights in (*range(IN_SHARE, IN_SHARE - len(ledger.levels[at.policy_id]), -1), BORROWED):
        if rights <= highest:
            yield _at_level(ledger, at, rights, rights_of)


def _at_level(
    ledger: PoolLedger, at: QueueKey, rights: int, rights_of: _Rights | None = None
) -> Iterator[_Place]:
    """The waiters of a queue that would have these rights; all waiters if no others are
    possible.
    """
    queue = ledger.queues[at]
    above, rank, satisfaction, _ = order(
        ledger.standing(at.rank, rights), BEGINNING, ledger.satisfaction(at)
    )
    for age in queue.ages():
        if rights_of is None or rights_of(queue.demand(age[2])) == rights:
            yield above, rank, satisfaction, age, at


def _rights_in(ledger: PoolLedger, at: QueueKey) -> _Rights:
    """The rights that a waiter of a queue would have, as a function of its demand."""
    known: dict[tuple[tuple[str, int], ...], int] = {}

    def rights_of(demand: Amounts) -> int:
        asked = tuple(demand.items())
        found = known.get(asked)
        if found is None:
            band = ledger.band(at, demand)
            found = rights_if_granted(ledger, at.policy_id, demand, at.preemptible, band)
            known[asked] = found
        return found

    return rights_of


def as_granted(
    ledger: PoolLedger, request: Request, policy_id: str, demand: Amounts
) -> tuple[int, Standing]:
    """The rights and the standing that a waiter would have."""
    key = ledger.queue_of(policy_id, request)
    band = ledger.band(key, demand)
    rights = rights_if_granted(ledger, policy_id, demand, request.preemptible, band)
    return rights, ledger.standing(key.rank, rights)


def order_of(ledger: PoolLedger, request: Request, policy_id: str, demand: Amounts) -> Order:
    """The order of one waiter."""
    _, standing = as_granted(ledger, request, policy_id, demand)
    satisfaction = ledger.satisfaction(ledger.queue_of(policy_id, request))
    return order(standing, (*request.age, request.id), satisfaction)

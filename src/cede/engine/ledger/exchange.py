"""The rights of a waiter once those it stops have left.

A share that is full of lower classes has room for a waiter of a higher one as soon as they leave,
and who takes is judged as it will be then (law 3). So inside one policy a higher class takes the
place of a lower one, although both are in share: the policy holds as much as before. What must
leave of the share is a goal of the search for victims. But nobody is stopped for rights alone: each
victim must be needed for room as well.

Whoever is stopped so fills the share no more, from that moment on. Behind it the waiter's promise
would stand as borrowed until it has left, and a borrower of a higher class could cut into it: the
victim would go on, the waiter take it again, and so on for ever.
"""

from __future__ import annotations

from collections.abc import Iterator

from cede.engine.ledger.account import goes_before, over_share
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.queue import QueueKey
from cede.engine.rights.standing import IN_SHARE
from cede.model.amounts import Amounts
from cede.model.settings import Rank

# How much of what a policy itself holds must leave.
Part = tuple[str, Amounts]


def exchanges(
    ledger: PoolLedger, key: QueueKey, demand: Amounts, band: int, rights: int
) -> Iterator[tuple[int, Part]]:
    """Higher rights than these that a waiter has if it stops the right ones, the lowest first."""
    levels = ledger.levels[key.policy_id]
    for distance in reversed(range(min(IN_SHARE - rights, len(levels)))):
        level, higher = levels[distance], IN_SHARE - distance
        over = over_share(ledger, level, demand, goes_before(ledger, key.policy_id, level, band))
        found = yielding(ledger, key, higher)
        if all(found.get(name, 0) >= amount for name, amount in over.items()):
            yield higher, (key.policy_id, over)


def yielding(ledger: PoolLedger, key: QueueKey, rights: int) -> Amounts:
    """What could leave of the share that gives those of a queue these rights.

    Only classes differ inside a policy. Non-preemptible work has its rights beside other such work
    alone, which nobody stops.
    """
    distance, levels = IN_SHARE - rights, ledger.levels[key.policy_id]
    by_class = ledger.pool.settings.rank is Rank.CLASS
    if not by_class or not key.preemptible or distance >= len(levels):
        return {}
    bound = ledger.standing(key.rank, rights)
    return ledger.yielding(key.policy_id, key.rank, bound)

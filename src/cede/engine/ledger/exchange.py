"""The rights of a waiter once its victims have left.

A share that is full of lower classes has room for a waiter of a higher one as soon as they leave,
and a preemptor is judged as it will be then (law 3). So inside one policy a higher class takes the
place of a lower one, although both are in share: the policy holds as much as before. The amounts
that must leave the share are a goal of the search for victims. But no holder is stopped for rights
alone: each victim must be needed for room as well.

Such a victim gives its place in the share up at once. Otherwise the waiter's promise, behind it,
would be borrowed until it has left, and a borrower of a higher class could cut into the promise:
the victim would go on, the waiter stop it again, and so on without end.
"""

from __future__ import annotations

from collections.abc import Iterator

from cede.engine.ledger.account import goes_before, over_share
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.queue import QueueKey
from cede.engine.rights.standing import IN_SHARE
from cede.model.amounts import Amounts
from cede.model.settings import Rank

# A policy, and the amounts of its own holdings that must leave.
Part = tuple[str, Amounts]


def exchanges(
    ledger: PoolLedger, key: QueueKey, demand: Amounts, band: int, rights: int
) -> Iterator[tuple[int, Part]]:
    """Higher rights than these that a waiter has after an exchange, the lowest first, each with the
    amounts that must leave for them.
    """
    levels = ledger.levels[key.policy_id]
    for distance in reversed(range(min(IN_SHARE - rights, len(levels)))):
        level, higher = levels[distance], IN_SHARE - distance
        over = over_share(ledger, level, demand, goes_before(ledger, key.policy_id, level, band))
        found = yielding(ledger, key, higher)
        if all(found.get(name, 0) >= amount for name, amount in over.items()):
            yield higher, (key.policy_id, over)


def yielding(ledger: PoolLedger, key: QueueKey, rights: int) -> Amounts:
    """The amounts that could leave the share that gives a queue these rights.

    Inside a policy only classes differ. The rights of non-preemptible work depend only on other
    such work, which is never stopped.
    """
    distance, levels = IN_SHARE - rights, ledger.levels[key.policy_id]
    by_class = ledger.pool.settings.rank is Rank.CLASS
    if not by_class or not key.preemptible or distance >= len(levels):
        return {}
    bound = ledger.standing(key.rank, rights)
    return ledger.yielding(key.policy_id, key.rank, bound)

"""The levels of every pool at one instant, as a point of its history: what it has, holds, lends
beyond shares and is asked for. The same account as `status`, without telling policies apart.
"""

from __future__ import annotations

from cede.engine.ledger.ledger import PoolLedger
from cede.engine.rights.standing import BORROWED
from cede.engine.state.state import State
from cede.model.amounts import add_to
from cede.model.levels import Level, Levels


def levels(state: State, now: int) -> dict[str, Levels]:
    """The levels by the id of each pool."""
    return {pool_id: _pool(ledger, now) for pool_id, ledger in state.ledgers.items()}


def _pool(ledger: PoolLedger, now: int) -> Levels:
    borrowed: dict[str, int] = {}
    for holding in ledger.holdings.values():
        if not holding.earmark and ledger.rights(holding.id) == BORROWED:
            add_to(borrowed, holding.amounts)
    waiting: dict[str, int] = {}
    requests = len(ledger.earmarks)
    for earmark in ledger.earmarks.values():
        add_to(waiting, earmark.amounts)
    for queue in ledger.queues.values():
        requests += len(queue)
        add_to(waiting, queue.wanted())
    keys = {
        key: Level(most, ledger.live.get(key, 0), borrowed.get(key, 0), waiting.get(key, 0))
        for key, most in sorted(ledger.pool.capacity.items())
    }
    return Levels(now, keys, requests)

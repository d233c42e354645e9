"""The contents of pools: sums that are kept as things change, so that reading them costs
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cede.engine.state.state import State
from cede.model.amounts import Amounts
from cede.model.pool import Pool


class Contents(NamedTuple):
    """A pool with its held and promised amounts, the waiters that it could serve and its live
    allocations.
    """

    pool: Pool
    occupied: Amounts
    earmarked: Amounts
    queued: int
    active: int


def contents(state: State, pool_ids: Iterable[str] | None = None) -> list[Contents]:
    """The contents of these pools, without unknown ones, or of all pools by name."""
    if pool_ids is None:
        pools = sorted(state.pools.values(), key=lambda each: each.name)
    else:
        pools = [state.pools[each] for each in pool_ids if each in state.pools]
    return [_of(state, pool) for pool in pools]


def _of(state: State, pool: Pool) -> Contents:
    ledger = state.ledgers[pool.id]
    subjects = {each.subject for each in ledger.policies.values()}
    return Contents(
        pool,
        {key: amount for key, amount in ledger.live.items() if amount},
        {key: amount for key, amount in ledger.earmarked.items() if amount},
        sum(state.waiters(each, pool.id) for each in subjects),
        len(ledger.holdings) - len(ledger.earmarks),
    )

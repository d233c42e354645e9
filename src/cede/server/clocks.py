"""Clocks of pools over restarts: running clocks are stored at intervals, and go on from there.

Every few seconds and not with every commit: in a large pool with fair shares they move with every
request. A crash loses at most the clocks that began since.
"""

from __future__ import annotations

import orjson

from cede.engine.shares import clocks
from cede.engine.state.state import State
from cede.model.bounds import CLOCKS_EVERY
from cede.store.values import ClockRows


class PoolClocks:
    """The stored clocks of each pool, and when to compare them again."""

    def __init__(self, written: dict[str, str], state: State) -> None:
        self._written = dict(written)
        self._looked = state.now
        for pool_id, text in written.items():
            if pool_id in state.ledgers:
                clocks.restore(state, pool_id, orjson.loads(text))

    def due(self, state: State) -> int | None:
        """Return when to compare again; None while no clock runs or is stored."""
        kept = (state.starving, state.over, state.volumes)
        some = self._written or any(any(each.values()) for each in kept)
        return self._looked + CLOCKS_EVERY if some else None

    def rows(self, state: State, now: int) -> ClockRows:
        """Return the rows that have changed since they were stored."""
        self._looked = now
        found = {pool_id: clocks.shown(state, pool_id) for pool_id in state.ledgers}
        running = {pool_id: orjson.dumps(each).decode() for pool_id, each in found.items() if each}
        rows = ClockRows(deleted=[(each,) for each in self._written if each not in running])
        for pool_id, text in running.items():
            if pool_id not in self._written:
                rows.inserted.append((pool_id, text))
            elif self._written[pool_id] != text:
                rows.updated.append((pool_id, text))
        return rows

    def wrote(self, rows: ClockRows) -> None:
        self._written.update(dict([*rows.inserted, *rows.updated]))
        for (pool_id,) in rows.deleted:
            del self._written[pool_id]

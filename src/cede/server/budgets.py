"""Reads the used part of each tenant's budget from the store, and publishes it to the engine
between two commits.

Summing a quarter of a year may take a while, so it is done in a thread beside the writer. The
engine's figures are then a minute old, which is little in a budget of hours. At the start the
server waits for them, so that the first pass decides as the last one did.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from cede.engine.ledger.tenants import publish_budgets
from cede.engine.state.state import State
from cede.model import bounds
from cede.server.queue import Overloaded, Stopping
from cede.store.store import Store

EVERY = bounds.MINUTE

_log = structlog.get_logger("cede.budgets")


class Budgets:
    """Reads used budgets every minute. `tell` hands a change to the writer's thread and may
    refuse; then the next round does it."""

    def __init__(
        self, store: Store, tell: Callable[[Callable[[State, int], None]], object]
    ) -> None:
        self._store = store
        self._tell = tell
        self._next = 0
        self._reading: threading.Thread | None = None

    def first(self, state: State, now: int) -> None:
        """Read and publish at once, before the writer starts."""
        self._next = now + EVERY
        if _any(state):
            publish_budgets(state, self._store.budgets_used(now))

    def look_after(self, state: State, now: int) -> None:
        """Begin the next round when it is time. The writer calls this at intervals, on its
        thread."""
        if now < self._next or (self._reading is not None and self._reading.is_alive()):
            return
        self._next = now + EVERY
        if _any(state):
            self._reading = threading.Thread(
                target=self._round, args=(now,), name="cede-budgets", daemon=True
            )
            self._reading.start()
        elif state.budgets:
            publish_budgets(state, {})

    def stop(self, seconds: float) -> None:
        if self._reading is not None:
            self._reading.join(seconds)

    def _round(self, now: int) -> None:
        try:
            found = self._store.budgets_used(now)
            self._tell(lambda state, _: publish_budgets(state, found))
        except (Overloaded, Stopping):
            return
        except Exception:
            # The published figures stay; they are read again in a minute.
            _log.exception("budgets could not be read")


def _any(state: State) -> bool:
    return any(each.budgeted for each in state.tenants.values())

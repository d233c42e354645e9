"""What part of its budget each tenant has used, for the engine: read from the store, published
between two commits.

Summing a quarter of a year may take a while, so it is done beside the writer and not by it. What
the engine uses is then a minute old, which in a budget of hours is nothing. At the start it is
waited for, so that the first pass decides as the last one did.
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
    """`tell` hands a change to the writer's thread and may refuse; then the next round does it."""

    def __init__(
        self, store: Store, tell: Callable[[Callable[[State, int], None]], object]
    ) -> None:
        self._store = store
        self._tell = tell
        self._next = 0
        self._reading: threading.Thread | None = None

    def first(self, state: State, now: int) -> None:
        """Before the writer starts."""
        self._next = now + EVERY
        if _any(state):
            publish_budgets(state, self._store.budgets_used(now))

    def look_after(self, state: State, now: int) -> None:
        """On the writer's thread, now and then: begin the next round when it is time."""
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
            # What was published stays; it is read again in a minute.
            _log.exception("budgets could not be read")


def _any(state: State) -> bool:
    return any(each.budgeted for each in state.tenants.values())

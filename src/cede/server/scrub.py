"""Looks for damage in the stored history: at the start for as long as a start may take, then slowly
and for ever.

Living state was verified when it was loaded. All other rows are read on a connection of their own
and against the digests of one commit, so commits go on meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import perf_counter

import structlog
from sqlalchemy.exc import SQLAlchemyError

from cede.store.errors import Damaged
from cede.store.store import Store

# Little beside the start of a site that has much to verify: that is verified while it is served. To
# verify a table of so many rows takes a fifth of a second.
START_SECONDS = 1.0
START_ROWS_MAX = 100_000
EVERY_SECONDS = 3_600.0
# Seconds of rest for each second of reading.
REST = 3

_log = structlog.get_logger("cede.scrub")


class Scrub:
    """Reads the stored history in rounds. `tell` is called once, with the damage that was found."""

    def __init__(self, store: Store, tell: Callable[[Damaged], None]) -> None:
        self._store = store
        self._tell = tell
        self._stop = threading.Event()
        self._done = False
        self._worked = 0.0
        self._thread = threading.Thread(target=self._main, name="cede-scrub", daemon=True)

    def first(self, seconds: float = START_SECONDS) -> None:
        """Scrub before the server serves, except live rows, which were loaded just now, and large
        tables; raise `Damaged` if damage is found in so many seconds.
        """
        until = perf_counter() + seconds
        found = self._store.scrub(
            lambda: perf_counter() < until, loaded=True, rows_max=START_ROWS_MAX
        )
        if found:
            raise Damaged(found)
        self._done = found is not None

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _main(self) -> None:
        while not self._stop.wait(EVERY_SECONDS if self._done else 0):
            found = self._round()
            self._done = True
            if found:
                self._tell(Damaged(found))
                return

    def _round(self) -> Sequence[str] | None:
        self._worked = perf_counter()
        try:
            return self._store.scrub(self._rest)
        except SQLAlchemyError:
            _log.exception("the database could not be verified; it is tried again later")
            return None

    def _rest(self) -> bool:
        stopped = self._stop.wait(REST * (perf_counter() - self._worked))
        self._worked = perf_counter()
        return not stopped

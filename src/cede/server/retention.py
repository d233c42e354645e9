"""Removes rows that are older than they are kept, in a thread of its own.

A thread of the leader's looks for rows that are too old, and hands them to the writer as one more
command, a few rows at a time. In between it rests for longer than a command took, so callers wait
for it no more than for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter

import structlog

from cede.model import bounds
from cede.server import clock
from cede.server.queue import Overloaded, Stopping
from cede.server.tx import Tx
from cede.server.writer import Writer
from cede.store.errors import Damaged, DiskFull
from cede.store.store import Store
from cede.store.values import Keep, Removal, Run

# Seconds between two looks when nothing is left to remove.
EVERY = 10 * bounds.MINUTE / bounds.SECOND
# The thread rests so many times as long as the writer took, and at least so many seconds: at most a
# fifth of the writer's time goes into removing, whatever the machine.
REST = 4
REST_MIN = 0.01
# Seconds until the next try after an error, such as a database that cannot be reached.
AFTER_ERROR = 10.0

_log = structlog.get_logger("cede.retention")


class Retention:
    """Removes rows between `start` and `stop`; `turn` is one step, and tests call it."""

    def __init__(self, store: Store, writer: Writer, keep: Keep) -> None:
        self._store = store
        self._writer = writer
        self._keep = keep
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, name="cede-retention", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float = 60) -> None:
        """Stop the thread, before the writer stops; rows that are left are removed after the
        next start."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def turn(self) -> bool:
        """Remove a few rows, or begin the next run; return whether there was anything to do.

        Rows that the last run left go first: a run begins when nothing of the one before is left.
        """
        now = self._writer.now()
        if (removal := self._store.next_removal(self._keep, now)) is not None:
            self._writer.execute(_removing(removal)).result()
            return True
        run = self._store.next_run(self._keep, now, clock.wall())
        if run is None:
            return False
        self._writer.execute(_beginning(run)).result()
        _log.info("history is removed", **run.note.detail)
        return True

    def _main(self) -> None:
        rest = 0.0
        while not self._stop.wait(rest):
            began = perf_counter()
            try:
                more = self.turn()
                rest = max(REST_MIN, REST * (perf_counter() - began)) if more else EVERY
            except Stopping:
                return
            except (Overloaded, DiskFull, Damaged):
                rest = AFTER_ERROR  # callers get the same errors: no news for the log
            except Exception:
                # Nothing is lost by waiting: old rows stay a little longer.
                _log.exception("history could not be removed; it is tried again")
                rest = AFTER_ERROR


def _removing(removal: Removal) -> Callable[[Tx], None]:
    def command(tx: Tx) -> None:
        tx.removal = removal

    return command


def _beginning(run: Run) -> Callable[[Tx], None]:
    def command(tx: Tx) -> None:
        tx.run = run

    return command

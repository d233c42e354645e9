"""Notes every minute how much of each pool is used and wished for, in a thread of its own, and the
time of day where that has moved against the server's own clock.

A note has the committed state, read between two commits, and is handed to the writer as one more
command.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

import structlog

from cede.engine.explain.levels import levels
from cede.model.bounds import HISTORY_FINE, SECOND
from cede.model.levels import Levels
from cede.server import clock
from cede.server.queue import Overloaded, Stopping
from cede.server.tx import Tx
from cede.server.writer import Writer
from cede.store.errors import Damaged, DiskFull
from cede.store.store import Store
from cede.store.values import Noted

_log = structlog.get_logger("cede.history")


class History:
    """The notes of one server between `start` and `stop`; `turn` makes one note, and tests call
    it."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        found: Mapping[str, Levels],
        wall: Callable[[], int] = clock.wall_milliseconds,
    ) -> None:
        """`found` has the levels at the start of the server, before it decided anything."""
        self._store = store
        self._writer = writer
        self._found: Mapping[str, Levels] | None = found
        self._wall = wall
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, name="cede-history", daemon=True)

    def start(self) -> None:
        """Make the first note and start the thread. Reports by days need the time of day, so it
        is noted before the first call; a server that cannot write starts all the same.
        """
        with suppress(DiskFull, Damaged):
            self.turn()
        self._thread.start()

    def stop(self, seconds: float = 60) -> None:
        """Stop the thread, before the writer stops."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def turn(self) -> bool:
        """Note this minute, unless it has been noted, and before the first one the levels at the
        start; return whether anything was written.
        """
        returning = self._found is not None
        sampled = self._writer.query(levels).result() if self._found is None else self._found
        now = self._writer.now()
        noted = self._store.next_note(sampled, now, self._wall() - now, returning=returning)
        if not noted.empty:
            self._writer.execute(_noting(noted)).result()
        self._found = None
        return returning or not noted.empty

    def _main(self) -> None:
        while True:
            try:
                while self.turn():
                    pass  # the levels at the start come before the sample of now
            except Stopping:
                return
            except (Overloaded, DiskFull, Damaged):
                pass  # callers get the same errors: no news for the log
            except Exception:
                # A minute without a note counts as the minute before it.
                _log.exception("the history of pools was not noted; it is tried again")
            rest = HISTORY_FINE - self._writer.now() % HISTORY_FINE
            if self._stop.wait(rest / SECOND):
                return


def _noting(noted: Noted) -> Callable[[Tx], None]:
    def command(tx: Tx) -> None:
        tx.noted = noted

    return command

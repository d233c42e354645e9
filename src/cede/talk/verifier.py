"""Verifies each manifest in a checkpoint directory once, in a thread: hashing may take minutes."""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from cede.checkpoint import manifest, shelf
from cede.checkpoint.manifest import SUFFIX, NotACheckpoint, Saved

# A rename may leave a directory's time unchanged, if it comes in the same tick as the look.
_LOOK_SECONDS = 1.0
_Stamp = tuple[int, int, int]


class _Stopped(Exception):
    pass


class Verifier:
    """Verifies a directory's checkpoints. `look` never waits; `verdicts` are the thread's results
    since they were last taken.

    The newest checkpoint is judged first. Once it is valid, older ones that existed with it are
    skipped: a restart does not hash everything again, and no attempt goes back to one that may have
    been removed by now. A checkpoint that appears later is always judged, whatever its id.
    Checkpoints from before the attempt are not the attempt's, and are not judged.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._seen: dict[str, _Stamp] = {}
        self._known: dict[str, _Stamp | None] = {}  # None: not found again so far
        self._waiting: list[str] = []
        self._appeared: dict[str, int] = {}  # the number of the look at which it appeared
        self._looks = 0
        self._verdicts: list[tuple[str, Saved | NotACheckpoint]] = []
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._looked_at = float("-inf")
        self._changed_at = 0

    def know(self, ids: Collection[str] | None) -> None:
        """Take these ids, by default all that exist, as older than the attempt.

        Comes before the first look. One whose manifest is replaced later is judged nevertheless.
        """
        found: dict[str, _Stamp] = {}
        with suppress(OSError):
            found = self._stamps()
        self._known = {id: found.get(id) for id in (found if ids is None else ids)}

    def look(self, now: float | None, before: frozenset[str] | None) -> None:
        """Look for new checkpoints if it is time; always without `now`.

        `before` are the checkpoints older than the hint, if there is a hint.
        """
        try:
            changed_at = self._directory.stat().st_mtime_ns
            is_over = now is not None and now - self._looked_at >= _LOOK_SECONDS
            if not (now is None or is_over or changed_at != self._changed_at):
                return
            found = self._stamps()
        except OSError:
            return  # a removed directory has no checkpoints
        self._looked_at = self._looked_at if now is None else now
        self._changed_at = changed_at
        fresh = [id for id, stamp in found.items() if self._is_fresh(id, stamp)]
        with self._lock:
            self._seen = found
            self._note(fresh, before)
            self._waiting = sorted({*self._waiting, *fresh}, key=shelf.age)
            if self._waiting and self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def seen(self) -> frozenset[str]:
        return frozenset(self._seen)

    @property
    def known(self) -> frozenset[str]:
        return frozenset(self._known)

    def verdicts(self) -> list[tuple[str, Saved | NotACheckpoint]]:
        with self._lock:
            taken, self._verdicts = self._verdicts, []
            return taken

    @property
    def is_busy(self) -> bool:
        thread = self._thread
        return thread is not None and thread.is_alive()

    def close(self) -> None:
        self._stopped = True

    def _stamps(self) -> dict[str, _Stamp]:
        """Every id with a stamp that changes when its manifest is replaced."""
        stamps = {}
        for id in shelf.newest(self._directory):
            with suppress(OSError):  # being removed at this moment
                found = (self._directory / (id + SUFFIX)).lstat()
                stamps[id] = (found.st_ino, found.st_mtime_ns, found.st_size)
        return stamps

    def _is_fresh(self, id: str, stamp: _Stamp) -> bool:
        if id in self._known:
            if self._known[id] is None:
                self._known[id] = stamp  # its folder was unreachable when it became known
            if self._known[id] == stamp:
                return False
        return self._seen.get(id) != stamp

    def _note(self, fresh: list[str], before: frozenset[str] | None) -> None:
        """Note when each appeared. At the first look the hint tells old from new."""
        is_first, self._looks = self._looks == 0, self._looks + 1
        for id in fresh:
            is_old = is_first and (before is None or id in before)
            self._appeared[id] = 0 if is_old else self._looks
        gone = self._appeared.keys() - self._seen.keys()
        for id in gone:
            del self._appeared[id]

    def _work(self) -> None:
        while (id := self._next()) is not None:
            verdict: Saved | NotACheckpoint
            try:
                verdict = manifest.verify(self._directory, id, self._on_progress)
            except NotACheckpoint as error:
                verdict = error
            except _Stopped:
                return
            with self._lock:
                self._verdicts.append((id, verdict))
                if isinstance(verdict, Saved):
                    self._waiting = [
                        each for each in self._waiting if not self._supersedes(id, each)
                    ]

    def _supersedes(self, id: str, other: str) -> bool:
        appeared = self._appeared
        return appeared.get(other, 0) <= appeared.get(id, 0) and shelf.age(other) < shelf.age(id)

    def _next(self) -> str | None:
        """The next id to verify: the newest first, because a waiter may depend on it."""
        with self._lock:
            if not self._waiting or self._stopped:
                self._thread = None
                return None
            return self._waiting.pop()

    def _on_progress(self, done: int, total: int) -> None:
        if self._stopped:
            raise _Stopped

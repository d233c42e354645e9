"""The state behind `cede.checkpoint`: which step we are at, when to save, what was asked.

One per process. Any thread may call it; the lock is not held while files are written and hashed.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from cede.checkpoint import clock, manifest, shelf
from cede.checkpoint.line import (
    ATTEMPT,
    CHECKPOINT_DIR,
    RESUME_FROM,
    TALK_DIR,
    number_in,
    open_line,
)
from cede.checkpoint.manifest import NotACheckpoint, Saved
from cede.checkpoint.words import Answer, Hint, Status, plain

LOCAL_DIRECTORY = "checkpoints"
# Hashing reports every megabyte, and nobody reads faster than this.
_TELL_SECONDS = 0.2


class Session:
    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._lock = threading.RLock()
        self._is_local = not environment.get(TALK_DIR)
        self._resume_path = environment.get(RESUME_FROM)
        self._attempt = number_in(environment, ATTEMPT)
        self.directory = Path(environment.get(CHECKPOINT_DIR) or LOCAL_DIRECTORY).absolute()
        self._line = open_line(environment)
        self._resumed: Saved | None = None
        self._has_looked = False
        self._done = 0  # steps that are done once the present one is
        self._total: int | None = None
        self._every: int | None = None
        self._seconds: float | None = None
        self._last_step = 0
        self._last_time = clock.now()
        self._answer: Answer | None = None
        self._told_at = 0.0
        self._deferred_until = 0.0
        self._writing: set[str] = set()
        self._before: str = ""  # the last good checkpoint, which stays until there are two newer

    # Where we are.

    def resumed(self) -> Saved | None:
        """The checkpoint to go on from, verified once."""
        with self._lock:
            if not self._has_looked:
                self._resumed = self._find()
                self._has_looked = True
                self._before = self._resumed.id if self._resumed else ""
                self._done = self._last_step = self._resumed.step if self._resumed else 0
            return self._resumed

    def _find(self) -> Saved | None:
        if self._resume_path:
            # Not another one instead: cede chose it, perhaps for several tasks together.
            path = Path(self._resume_path)
            return manifest.verify(path.parent, path.name)
        if self._is_local and self.directory.is_dir():
            for id in shelf.newest(self.directory):
                with suppress(NotACheckpoint):
                    return manifest.verify(self.directory, id)
        return None

    def steps(self, total: int | None, every: int | None, seconds: float | None) -> Iterator[int]:
        with self._lock:
            resumed = self.resumed()
            self._total, self._every, self._seconds = total, every, seconds
            self._last_time = clock.now()
        start = resumed.step if resumed else 0
        for step in count(start) if total is None else range(start, total):
            with self._lock:
                self._done = step + 1
            yield step

    # What is asked.

    def should_save(self) -> bool:
        with self._lock:
            if self._pending() is not None and clock.now() >= self._deferred_until:
                return True
            since = self._done - self._last_step
            return since > 0 and (
                self._done == self._total
                or (self._every is not None and since >= self._every)
                or (self._seconds is not None and clock.now() - self._last_time >= self._seconds)
            )

    def stopping(self) -> bool:
        with self._lock:
            hint = self._line.hint()
            stands = hint is not None and not hint.withdrawn and not hint.goes_on
            return hint is not None and stands and self._is_saved(hint)

    def _pending(self) -> Hint | None:
        """The hint that stands and is not carried out. Whoever sees it first answers it."""
        hint = self._line.hint()
        if hint is None or hint.withdrawn or self._is_saved(hint):
            return None
        if self._answer is None or self._answer.number != hint.number:
            self._deferred_until = 0.0
            self._tell(Answer(hint.number))
        return hint

    def _is_saved(self, hint: Hint) -> bool:
        answer = self._answer
        return answer is not None and answer.number == hint.number and answer.status is Status.SAVED

    # What we answer.

    def defer(self, seconds: float, why: str) -> bool:
        with self._lock:
            if self._pending() is None or self._answer is None:
                return False
            self._deferred_until = clock.now() + seconds
            self._change(
                status=Status.DEFERRED,
                deferrals=self._answer.deferrals + 1,
                defer_seconds=float(seconds),
                why=why,
            )
            return True

    def progress(self, fraction: float, estimate: float | None) -> None:
        with self._lock:
            if self._pending() is not None:
                status = Status.SAVING
                self._change(status=status, fraction=float(fraction), estimate=estimate)

    def _change(self, **changes: object) -> None:
        assert self._answer is not None
        self._tell(replace(self._answer, **changes).sane())  # type: ignore[arg-type]

    def _tell(self, answer: Answer) -> None:
        self._answer = answer
        self._told_at = clock.now()
        with suppress(OSError):  # a full disk for answers is no reason to stop working
            self._line.tell(answer)

    # Saving.

    @contextmanager
    def saving(self, labels: Mapping[str, str] | None) -> Iterator[Path]:
        with self._lock:
            self.resumed()
            hint, step = self._pending(), self._done
            if hint is not None:
                self._change(status=Status.SAVING)
            id = shelf.next_id(self.directory, step, self._attempt)
            self._writing.add(id)
        # A hint that comes while we write is answered as well, but only if it is seen before the
        # manifest is there: what a host finds when it asks, it takes for older than its hint.
        asked = hint

        def hashing(done: int, total: int) -> None:
            nonlocal asked
            asked = self._report(done / total) or asked

        try:
            yield self.directory / id
            manifest.write(self.directory, id, step, labels, hashing)
        except BaseException as error:
            with suppress(OSError):
                shelf.remove(self.directory, id)
            with self._lock:
                if hint is not None:
                    why = plain(f"{type(error).__name__}: {error}")
                    self._change(status=Status.FAILED, why=why)
                self._writing.discard(id)
            raise
        self._is_on_disk(id, step, asked)

    def saved(self, path: Path, labels: Mapping[str, str] | None) -> None:
        """Copied, because the application may write to its own files again."""
        with self.saving(labels) as directory:
            if path.is_dir():
                shutil.copytree(path, directory, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy2(path, directory / path.name, follow_symlinks=False)

    def _report(self, fraction: float) -> Hint | None:
        with self._lock:
            pending = self._pending()
            if pending is not None and clock.now() - self._told_at >= _TELL_SECONDS:
                self._change(status=Status.SAVING, fraction=fraction)
            return pending

    def _is_on_disk(self, id: str, step: int, asked: Hint | None) -> None:
        with self._lock:
            self._last_step, self._last_time = step, clock.now()
            pending = self._pending()
            if pending is not None and asked is not None and pending.number == asked.number:
                self._change(status=Status.SAVED, saved=id, fraction=1.0, estimate=0.0)
            self._writing.discard(id)
            keep, self._before = min(self._before, id, key=shelf.age), id
            if self._is_local and not self._writing:  # under cede the host cleans
                shelf.clean(self.directory, keep, idle=True)

"""The state behind `cede.checkpoint`: the present step, when to save, and the present hint.

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
from cede.checkpoint.gang import gang_of
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
# Hashing reports every megabyte; answers are written no more often than this.
_TELL_SECONDS = 0.2


class Session:
    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._lock = threading.RLock()
        self._is_local = not environment.get(TALK_DIR)
        self._resume_path = environment.get(RESUME_FROM)
        self._attempt = number_in(environment, ATTEMPT)
        self.directory = Path(environment.get(CHECKPOINT_DIR) or LOCAL_DIRECTORY).absolute()
        self._line = open_line(environment)
        self._gang = gang_of(environment)
        self._resumed: Saved | None = None
        self._has_looked = False
        self._done = 0  # the steps done once the present one is
        self._is_counted = False  # by `steps` or by `step`
        self._total: int | None = None
        self._every: int | None = None
        self._seconds: float | None = None
        self._last_step = 0
        self._last_time = clock.now()
        self._answer: Answer | None = None
        self._told_at = 0.0
        self._deferred_until = 0.0
        self._writing: set[str] = set()
        self._before: str = ""  # the last good checkpoint, kept until there are two newer ones

    # Where the application is.

    def resumed(self) -> Saved | None:
        """The checkpoint to go on from, verified once."""
        with self._lock:
            if not self._has_looked:
                self._resumed = self._find()
                self._has_looked = True
                self._before = self._resumed.id if self._resumed else ""
                self._last_step = self._resumed.step if self._resumed else 0
                self._done = self._done if self._is_counted else self._last_step
            return self._resumed

    def _find(self) -> Saved | None:
        if self._resume_path:
            # No other one instead: cede chose it, perhaps for several tasks together.
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
            self._is_counted = True
        start = resumed.step if resumed else 0
        for step in count(start) if total is None else range(start, total):
            with self._lock:
                self._done = step + 1
            yield step

    # The host's hints.

    def step(self, done: int) -> bool:
        with self._lock:
            self._done, self._is_counted = done, True
            return self.should_save()

    def should_save(self) -> bool:
        with self._lock:
            now = clock.now()
            if self._is_asked_together(now) if self._agrees else self._is_asked(now):
                return True
            return self._done > self._last_step and (
                self._done == self._total
                or self._is_interval_over()
                or (self._seconds is not None and now - self._last_time >= self._seconds)
            )

    def stopping(self) -> bool:
        with self._lock:
            hint = self._line.hint()
            stands = hint is not None and not hint.withdrawn and not hint.goes_on
            return hint is not None and stands and self._is_saved(hint) and not self._agrees

    @property
    def _agrees(self) -> bool:
        """Whether this task saves where the other tasks do; without a count of steps no step can be
        agreed.
        """
        return self._gang is not None and self._is_counted

    def _is_asked(self, now: float) -> bool:
        return self._pending() is not None and now >= self._deferred_until

    def _is_asked_together(self, now: float) -> bool:
        """Whether to save for a hint, with the gang. A later agreed step asks for another save, so
        an answered hint still counts.
        """
        assert self._gang is not None
        self._gang.note(self._done, now)
        hint = self._line.hint()
        if hint is None or hint.withdrawn:
            return False
        self._notice(hint)
        if now < self._deferred_until:
            return False
        is_due = self._gang.should_save(hint, self._done, self._total, now)
        if (id := self._gang.settled(hint)) and not self._is_saved(hint):
            self._change(status=Status.SAVED, saved=id, fraction=1.0, estimate=0.0)
        return is_due

    def _is_interval_over(self) -> bool:
        if self._every is None:
            return False
        if self._agrees:  # counted from 0: tasks may have made their last saves apart
            return self._done // self._every > self._last_step // self._every
        return self._done - self._last_step >= self._every

    def _pending(self) -> Hint | None:
        """The present hint, if it is not withdrawn and not carried out."""
        hint = self._line.hint()
        if hint is None or hint.withdrawn or self._is_saved(hint):
            return None
        self._notice(hint)
        return hint

    def _notice(self, hint: Hint) -> None:
        """Answer a hint that is new to this session."""
        if self._answer is None or self._answer.number != hint.number:
            self._deferred_until = 0.0
            self._tell(Answer(hint.number))

    def _answered_by(self, step: int) -> Hint | None:
        """The hint that a checkpoint of this step answers."""
        if not self._agrees:
            return self._pending()
        assert self._gang is not None
        hint = self._line.hint()
        stands = hint is not None and not hint.withdrawn
        return hint if hint and stands and self._gang.wants(hint, step) else None

    def _is_saved(self, hint: Hint) -> bool:
        answer = self._answer
        return answer is not None and answer.number == hint.number and answer.status is Status.SAVED

    # The application's answers.

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
            step, began = self._done, clock.now()
            hint = self._answered_by(step)
            if hint is not None:
                self._change(status=Status.SAVING)
            id = shelf.next_id(self.directory, step, self._attempt)
            self._writing.add(id)
        # A hint that comes during the write is answered too, but only if it is seen before the
        # manifest exists: the host takes a checkpoint that it already finds for older than its
        # hint.
        asked = hint

        def hashing(done: int, total: int) -> None:
            nonlocal asked
            pending = self._report(done / total)
            if not self._agrees:  # else it has to be the agreed step
                asked = pending or asked

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
        self._is_on_disk(id, step, asked, began)

    def saved(self, path: Path, labels: Mapping[str, str] | None) -> None:
        """Make a checkpoint of a copy, because the application may change its own files again."""
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

    def _is_on_disk(self, id: str, step: int, asked: Hint | None, began: float) -> None:
        with self._lock:
            self._last_step, self._last_time = step, clock.now()
            if self._gang is not None:
                self._gang.save(step, id, clock.now() - began)
            pending = self._pending()
            if pending is not None and asked is not None and pending.number == asked.number:
                self._change(status=Status.SAVED, saved=id, fraction=1.0, estimate=0.0)
            elif pending is not None and self._agrees:
                self._change(status=Status.ANSWERED, fraction=None)  # the agreed step is to come
            self._writing.discard(id)
            keep, self._before = min(self._before, id, key=shelf.age), id
            if self._is_local and not self._writing:  # under cede the host cleans
                shelf.clean(self.directory, keep, idle=True)

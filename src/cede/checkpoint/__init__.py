"""Makes work resumable: a few lines in a loop, with or without cede around it.

    import cede.checkpoint as checkpoint

    model = load(path) if (path := checkpoint.resume_from()) else Model()
    for step in checkpoint.steps(1000, every=50):
        train(model, step)
        if checkpoint.should_save():
            with checkpoint.saving() as directory:
                model.write(directory / "model")

Under cede, `should_save` is also true as soon as cede asks for a checkpoint. Without cede only the
interval counts, and checkpoints are in `./checkpoints` or in CEDE_CHECKPOINT_DIR.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from cede.checkpoint.line import survive_signal
from cede.checkpoint.manifest import NotACheckpoint, Saved
from cede.checkpoint.session import Session

__all__ = [
    "EXIT_SAVED",
    "NotACheckpoint",
    "Saved",
    "defer",
    "progress",
    "resume_from",
    "saved",
    "saving",
    "should_save",
    "step",
    "steps",
    "stopping",
]

# The exit code of work that leaves early because it was asked to and has saved itself; EX_TEMPFAIL.
EXIT_SAVED = 75

_environment: Mapping[str, str] = os.environ
_session: Session | None = None
_making = threading.Lock()


def _get() -> Session:
    """The session, made by the first call: a child process that imports this module must serve
    nothing.
    """
    global _session
    with _making:
        if _session is None:
            _session = Session(_environment)
        return _session


def begin(environment: Mapping[str, str]) -> None:
    """Use the conversation of this environment from now on, whatever was used before.

    Called by cede, in a process that was not started for it alone.
    """
    global _environment, _session
    with _making:
        _environment, _session = environment, None


def resume_from() -> Path | None:
    """The directory of the checkpoint to go on from, verified; None at a first start."""
    resumed = _get().resumed()
    return resumed.path if resumed else None


def steps(
    total: int | None, *, every: int | None = None, seconds: float | None = None
) -> Iterator[int]:
    """The steps still to do, of 0 to `total` - 1 (None: without end).

    Save every so many steps or seconds. The last step is always one to save after.
    """
    if every is not None and every < 1:
        raise ValueError(f"every: {every} is less than 1")
    return _get().steps(total, every, seconds)


def should_save() -> bool:
    """Whether to save now: the interval is over, or cede asks for it.

    In the loop of `steps` the tasks of a gang agree on the step, as with `step`.
    """
    return _get().should_save()


def step(n: int) -> bool:
    """Whether to save now that `n` steps are done, in a loop that counts its steps itself.

    The tasks of a gang save at one step, which they agree on through their agents: each calls this
    after the same steps. It never waits. Without an agreed step, a task saves when a quarter of the
    time until the deadline is left; under an agent of an older version, which agrees on nothing, it
    saves at once. If the agreed step moves on, save once more. In the loop of `steps` call
    `should_save`.
    """
    if n < 0:
        raise ValueError(f"n: {n} is less than 0")
    return _get().step(n)


def saving(labels: Mapping[str, str] | None = None) -> AbstractContextManager[Path]:
    """A directory to write into: after the block it is a checkpoint, after an exception it is
    gone.
    """
    return _get().saving(labels)


def saved(path: str | os.PathLike[str], labels: Mapping[str, str] | None = None) -> None:
    """Make a checkpoint of an existing file or folder; it is copied."""
    _get().saved(Path(path), labels)


def stopping() -> bool:
    """Whether cede asked for a checkpoint and has it: going on is of no use, unless the ask is
    withdrawn.

    Go on anyway, and cede stops the work; or leave, with `sys.exit(checkpoint.EXIT_SAVED)`. In a
    gang it stays False, because other tasks may need this task's next step to save at theirs: cede
    stops all.
    """
    return _get().stopping()


def defer(seconds: float, why: str) -> bool:
    """Ask for time before saving. False if no checkpoint is asked for. cede grants what it can."""
    return _get().defer(seconds, why)


def progress(fraction: float, estimate: float | None = None) -> None:
    """Report how far the save is, from 0 to 1, and how many seconds it still needs.

    Work that reports nothing counts as hanging when its time is over, and gets no more.
    """
    _get().progress(fraction, estimate)


survive_signal(os.environ)

"""How work stops: what its request asks for, and how far the stop has come. Also how running work
is asked to save itself and go on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from cede.model import bounds
from cede.model.fields import Duration, Flag, Word, declared


class Checkpoint(StrEnum):
    """How work is saved: cede asks for it, the application does it by itself when asked, or not at
    all.
    """

    AUTO = "auto"
    MANUAL = "manual"
    NONE = "none"


class Protocol(StrEnum):
    """How an application is asked to save itself."""

    SIGNAL = "signal"
    SHM = "shm"
    GRPC = "grpc"


class Resume(StrEnum):
    """Whether an attempt may start from the beginning when its checkpoint cannot be read."""

    PREFERRED = "preferred"
    REQUIRED = "required"


# The exit code of work that was asked to leave and has saved itself (EX_TEMPFAIL).
EXIT_SAVED = 75


_TIME = Duration(bounds.CHECKPOINT_TIMEOUT_MAX)


@dataclass(frozen=True, slots=True)
class StopPolicy:
    """How a request wants to be stopped."""

    checkpoint: Checkpoint = declared(
        Word(Checkpoint), "Whether it is asked to save itself before it stops.", Checkpoint.NONE
    )
    protocol: Protocol = declared(
        Word(Protocol),
        "How it is asked.",
        Protocol.SIGNAL,
        name="checkpoint_protocol",
        decides=False,
    )
    timeout: int = declared(
        _TIME,
        "Seconds that saving may take; 600 unless given.",
        bounds.CHECKPOINT_TIMEOUT_DEFAULT,
        name="checkpoint_timeout",
    )
    deferral_max: int = declared(
        _TIME,
        "Seconds by which saving may be put off in all; 300 unless given.",
        bounds.DEFERRAL_DEFAULT,
        name="max_deferral",
    )
    interruptible: bool = declared(
        Flag(), "Whether ending with exit code 0 when it is stopped means that it is done.", False
    )
    resume: Resume = declared(
        Word(Resume),
        "Whether it may start anew when its checkpoint cannot be read.",
        Resume.PREFERRED,
    )
    resume_wait: int = declared(
        _TIME,
        "Seconds to wait for nodes that have its checkpoint; 600 unless given.",
        bounds.RESUME_WAIT_DEFAULT,
    )


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint whose manifest was verified and committed (S17): the resume point."""

    id: str
    at: int
    size: int = 0
    index: int = 0  # its place in the journal
    attempt: int = 0  # the attempt that wrote it; 0: it was found in the folder
    folders: tuple[str, ...] = ()  # the folder of each task's part; empty if unknown
    before: str = ""  # the resume point before it; older ones may be deleted


def age(checkpoint: str) -> tuple[tuple[int, str], ...]:
    """The sort key of checkpoint ids: numbers compare as numbers, so that 10-1 comes after 9-1.

    The library for applications sorts in the same way and does not import this.
    """
    pieces = re.findall(r"\d+|\D+", checkpoint)
    return tuple((int(each), "") if each.isdigit() else (-1, each) for each in pieces)


@dataclass(frozen=True, slots=True)
class Pin:
    """The checkpoint folders that a waiter's tasks must sit at, one for each, until `until`; None:
    for ever.
    """

    folders: tuple[str, ...]
    until: int | None


@dataclass(frozen=True, slots=True)
class StopProgress:
    """The progress of one stop. `hint` is its number, `until` the end of its present step."""

    hint: int
    hinted_at: int
    until: int
    answered: bool = False  # the application has answered, so it lives
    extended: bool = False  # its time was extended once, because it was slow
    deferred: int = 0  # the deferral granted so far
    saved: bool = False
    failed: bool = False  # its time ended without a checkpoint
    step: int = 0  # the step at which all tasks of a gang save; 0: not agreed yet


@dataclass(frozen=True, slots=True)
class Ask:
    """The last time that running work was asked to save itself and go on. `number` is its hint's;
    from `until` on no answer is waited for.
    """

    number: int
    at: int
    until: int
    over: bool = False  # answered, or its time is over
    took: int | None = None  # from the last ask that led to a checkpoint until that checkpoint
    step: int = 0  # as in `StopProgress`

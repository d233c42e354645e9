"""How work parts from what it holds: what its request asks for, and how far a stop is. And how
it is asked to save itself although it stays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from cede.model import bounds
from cede.model.fields import Duration, Flag, Word, declared


class Checkpoint(StrEnum):
    """Who sees to it that work is saved: we ask for it, its application does by itself when asked,
    or nobody.
    """

    AUTO = "auto"
    MANUAL = "manual"
    NONE = "none"


class Protocol(StrEnum):
    """How an application is asked."""

    SIGNAL = "signal"
    SHM = "shm"
    GRPC = "grpc"


class Resume(StrEnum):
    """Whether an attempt may start from the beginning when its checkpoint cannot be read."""

    PREFERRED = "preferred"
    REQUIRED = "required"


# How work ends that leaves because it was asked to and has saved itself (EX_TEMPFAIL).
EXIT_SAVED = 75


_TIME = Duration(bounds.CHECKPOINT_TIMEOUT_MAX)


@dataclass(frozen=True, slots=True)
class StopPolicy:
    """What a request asks for when it must stop."""

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
    attempt: int = 0  # that wrote it; 0: it was found in the folder
    folders: tuple[str, ...] = ()  # where it lies, by task; empty when nobody said
    before: str = ""  # the resume point before it; what is older may be deleted


def age(checkpoint: str) -> tuple[tuple[int, str], ...]:
    """What ids of checkpoints are sorted by: numbers as numbers, so that 10-1 comes after 9-1. The
    library for applications sorts in the same way, and imports nothing of this.
    """
    pieces = re.findall(r"\d+|\D+", checkpoint)
    return tuple((int(each), "") if each.isdigit() else (-1, each) for each in pieces)


@dataclass(frozen=True, slots=True)
class Pin:
    """The checkpoint folders that a waiter's tasks must sit at, one for each, until then; None: for
    ever.
    """

    folders: tuple[str, ...]
    until: int | None


@dataclass(frozen=True, slots=True)
class StopProgress:
    """One stop. `hint` is its number, `until` when this step of it is over."""

    hint: int
    hinted_at: int
    until: int
    answered: bool = False  # the application has shown that it lives
    extended: bool = False  # it was slow once
    deferred: int = 0  # granted so far
    saved: bool = False
    failed: bool = False  # it was out of time without a checkpoint
    step: int = 0  # at which all tasks of a gang save; 0: not agreed yet


@dataclass(frozen=True, slots=True)
class Ask:
    """The last time that running work was asked to save itself and go on. `number` is its hint's,
    `until` when nobody waits for an answer any more.
    """

    number: int
    at: int
    until: int
    over: bool = False  # answered, or not in time
    took: int | None = None  # from an ask to its checkpoint, the last time that there was one
    step: int = 0  # as in a stop

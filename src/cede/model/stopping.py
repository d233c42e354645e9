"""How work parts from what it holds: what its request asks for, and how far a stop is. And how
it is asked to save itself although it stays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from cede.model import bounds


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


@dataclass(frozen=True, slots=True)
class StopPolicy:
    """What a request asks for when it must part. `interruptible` work that ends by itself with exit
    code 0 within the grace is done. `resume_wait` is how long a next attempt waits for nodes that
    have its checkpoint.
    """

    checkpoint: Checkpoint = Checkpoint.NONE
    protocol: Protocol = Protocol.SIGNAL
    timeout: int = bounds.CHECKPOINT_TIMEOUT_DEFAULT
    deferral_max: int = bounds.DEFERRAL_DEFAULT
    interruptible: bool = False
    resume: Resume = Resume.PREFERRED
    resume_wait: int = bounds.RESUME_WAIT_DEFAULT


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

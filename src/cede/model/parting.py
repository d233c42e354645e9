"""How work parts from what it holds: what its request asks for, and how far a farewell is. And how
it is asked to save itself although it stays.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Farewell:
    """What a request asks for when it must part. `interruptible` work that ends by itself with exit
    code 0 within the grace is done.
    """

    checkpoint: Checkpoint = Checkpoint.NONE
    protocol: Protocol = Protocol.SIGNAL
    timeout: int = bounds.CHECKPOINT_TIMEOUT_DEFAULT
    deferral_max: int = bounds.DEFERRAL_DEFAULT
    interruptible: bool = False


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint whose manifest was verified and committed (S17)."""

    id: str
    at: int
    size: int = 0
    index: int = 0  # its place in the journal


@dataclass(frozen=True, slots=True)
class Parting:
    """One farewell. `hint` is its number, `until` when this step of it is over."""

    hint: int
    hinted_at: int
    until: int
    answered: bool = False  # the application has shown that it lives
    extended: bool = False  # it was slow once
    deferred: int = 0  # granted so far
    saved: bool = False
    failed: bool = False  # it was out of time without a checkpoint


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

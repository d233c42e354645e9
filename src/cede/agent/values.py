"""Orders of the server, events and instructions of the machine, and its reports.

Instants are seconds on CLOCK_BOOTTIME, which goes on while the machine sleeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class Key(NamedTuple):
    """One task of one allocation: started at most once, for ever."""

    allocation: str
    task: int

    @property
    def directory(self) -> str:
        return f"{self.allocation}.{self.task}"


class Do(StrEnum):
    RUN = "run"
    HINT = "hint"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Order:
    """The server's order for one task. A hint with RUN means: save yourself, and go on. `looks`:
    nothing starts before the agent has reported which checkpoints are here. `body` is for the
    hands that start it; the machine does not read it.
    """

    key: Key
    attempt: int
    request: str
    do: Do
    devices: frozenset[str] = frozenset()
    grace: float = 30.0
    keeps_in_silence: bool = False
    hint: int = 0
    seconds_left: float = 0.0
    keep: str = ""  # older checkpoints than this one may be removed
    looks: bool = False
    step: int = 0  # at which all tasks of a gang save; 0: not agreed yet
    body: Mapping[str, Any] = field(default_factory=dict)


class Kind(StrEnum):
    STARTED = "started"
    ANSWERED = "answered"
    PROGRESS = "progress"
    DEFERRAL = "deferral"
    SAVED = "saved"
    SAVE_FAILED = "save_failed"
    ENDED = "ended"
    REFUSED = "refused"
    FOUND = "found"
    REACH = "reach"


FINAL = (Kind.ENDED, Kind.REFUSED)
INFRASTRUCTURE = "infrastructure"
# The cause of an end before the start: no failure, and unlike a refusal it says nothing of the
# node.
NEVER_STARTED = "never_started"


@dataclass(frozen=True, slots=True)
class Report:
    """One fact about one task for the server; `exit_code` is 128 + n for signal n."""

    key: Key
    attempt: int
    kind: Kind
    exit_code: int | None = None
    cause: str = ""
    checkpoint: str = ""
    size: int = 0
    hint: int = 0  # the hint that a checkpoint answers; 0 for one written of its own accord
    seconds: float = 0.0
    text: str = ""
    ids: tuple[str, ...] = ()  # verified checkpoints that were found, newest first
    step: int = 0  # the first at which it can save for the hint
    unread: bool = False  # its last checkpoint could not be verified in time
    devices: Mapping[str, list[str]] = field(default_factory=dict)  # that a cluster chose for it

    @property
    def never_started(self) -> bool:
        return self.kind is Kind.REFUSED or self.cause == NEVER_STARTED


# Lines of the journal.


@dataclass(frozen=True, slots=True)
class Taken:
    """This node took the order up: it is started, or refused, by this node and once."""

    order: Order


@dataclass(frozen=True, slots=True)
class Over:
    """The task will never run again; the report says how it ended."""

    report: Report


@dataclass(frozen=True, slots=True)
class Removed:
    """Its directory is gone, and so is the record of it."""

    key: Key


Entry = Taken | Over | Removed


def key_of(entry: Entry) -> Key:
    match entry:
        case Taken():
            return entry.order.key
        case Over():
            return entry.report.key
        case Removed():
            return entry.key


# Events: what happened.


@dataclass(frozen=True, slots=True)
class Orders:
    """An answer to a heartbeat that was sent at `sent_at`: all orders of this node."""

    epoch: int
    version: int
    orders: tuple[Order, ...]
    sent_at: float
    lease: float
    acknowledged: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Journalled:
    """The entry is on disk."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class JournalFailed:
    """The entry is not on disk and never will be: the disk is full."""

    entry: Entry
    why: str


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """No supervisor exists, and none will come of this launch. `refused`: this node will not run
    it, for a reason that trying again does not change; else the machine lacked something.
    """

    key: Key
    why: str
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    key: Key
    devices: Mapping[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """Its exit record is on disk, and no process of it runs."""

    key: Key
    exit_code: int | None
    cause: str = ""
    text: str = ""
    unread: bool = False


@dataclass(frozen=True, slots=True)
class Looked:
    """The checkpoints that an attempt could start from, newest first; and the problems of
    others."""

    key: Key
    ids: tuple[str, ...]
    problems: str = ""


@dataclass(frozen=True, slots=True)
class Heard:
    """A message of the application, or a file that it wrote; the report is ready to be sent."""

    report: Report


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


class Found(StrEnum):
    """The state of a supervisor's directory after a restart."""

    NEVER = "never"  # no supervisor existed, and none can come any more
    ALIVE = "alive"


@dataclass(frozen=True, slots=True)
class Restarted:
    """The journal as it is on disk, and the state of each task that was taken up."""

    entries: tuple[Entry, ...]
    found: Mapping[Key, Found | Ended]
    epoch: int = 0


Event = (
    Orders
    | Journalled
    | JournalFailed
    | LaunchFailed
    | Started
    | Ended
    | Looked
    | Heard
    | Tick
    | Restarted
)


# Instructions: what the runner must do, in this order.


@dataclass(frozen=True, slots=True)
class Journal:
    """Write and fsync, then say `Journalled` or `JournalFailed`."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Remember:
    """Keep the highest epoch on disk before anything else is done."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Look:
    """Verify the checkpoints that it could start from, then say `Looked`."""

    order: Order


@dataclass(frozen=True, slots=True)
class Launch:
    order: Order
    deadline: float | None


@dataclass(frozen=True, slots=True)
class SetDeadline:
    key: Key
    deadline: float | None


@dataclass(frozen=True, slots=True)
class Hint:
    """Ask it to save itself; it is stopped afterwards, or `goes_on`."""

    key: Key
    number: int
    seconds_left: float
    goes_on: bool = False


@dataclass(frozen=True, slots=True)
class Agree:
    """Tell it at which step all tasks of its gang save for this hint."""

    key: Key
    number: int
    step: int


@dataclass(frozen=True, slots=True)
class GoOn:
    key: Key


@dataclass(frozen=True, slots=True)
class Stop:
    key: Key
    grace: float


@dataclass(frozen=True, slots=True)
class KeepCheckpoint:
    key: Key
    checkpoint: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove its directory: its output will not be asked for any more."""

    key: Key


@dataclass(frozen=True, slots=True)
class Send:
    """The outbox has something new: do not wait for the next heartbeat."""


Instruction = (
    Journal
    | Remember
    | Look
    | Launch
    | SetDeadline
    | Hint
    | Agree
    | GoOn
    | Stop
    | KeepCheckpoint
    | Forget
    | Send
)

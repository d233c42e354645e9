"""A request for units: it lives across attempts and keeps its first submit time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cede.model import bounds
from cede.model.amounts import Amounts
from cede.model.array import parse_array, task_ref
from cede.model.fields import Count, Duration, Labels, Numbers, References, Text, Word, declared
from cede.model.lifecycle import TERMINAL, WAITING, RequestStatus
from cede.model.reason import Code, Reason
from cede.model.shape import Footprint, Shape
from cede.model.stopping import Pin, Saved, StopPolicy
from cede.model.subject import Subject
from cede.model.terms import USUAL, Terms
from cede.model.work import Work


class Preemptions(StrEnum):
    """Whether being preempted uses up a retry."""

    COUNT = "count"
    FREE = "free"


class OnSilence(StrEnum):
    """The treatment of a holder's units once its lease is over.

    Unless the request sets it, work is kept on nodes that share their machine with the server, and
    stopped on others.
    """

    STOP = "stop"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and after what delay, a request comes back after a failure or a preemption."""

    max_retries: int = declared(Count(0, bounds.RETRIES_MAX), "How often.", 0)
    delay: int = declared(
        Duration(bounds.RETRY_DELAY_MAX), "Seconds before the first time it comes back.", 0
    )
    backoff: int = declared(
        Count(1, bounds.BACKOFF_MAX), "By what the delay is multiplied each time.", 1
    )
    preemptions: Preemptions = declared(
        Word(Preemptions),
        "Whether being preempted uses up a retry; a step's does unless told otherwise.",
        Preemptions.COUNT,
    )

    def delay_before(self, retry: int) -> int:
        """Milliseconds to wait before retry number `retry` (from 1)."""
        grown: int = self.delay * self.backoff ** min(retry - 1, 64)
        return min(grown, bounds.RETRY_DELAY_MAX)


@dataclass(frozen=True, slots=True)
class Earmark:
    """Capacity promised to one waiter: its whole demand in one pool, promised at `index` in the
    journal; in a pool of nodes, on these nodes.
    """

    pool_id: str
    policy_id: str
    index: int
    footprint: Footprint = ()


@dataclass(frozen=True, slots=True)
class Withhold:
    """Capacity of one pool that is kept for a blocked head until `until` at the latest; in a pool
    of nodes, on these nodes. `start` is when walltimes prove that the head fits, if they do.
    """

    pool_id: str
    until: int
    footprint: Footprint = ()
    start: int | None = None


# Shared by all requests without a stop policy, which are most.
PLAIN = StopPolicy()


@dataclass(frozen=True, slots=True)
class Request:
    """Instants are milliseconds on the server's clock. `index` orders equal submit times."""

    id: str
    subject: Subject
    amounts: Amounts
    submitted_at: int = 0
    index: int = 0
    status: RequestStatus = RequestStatus.QUEUED
    preemptible: bool = True
    pool_id: str | None = None  # the pool it names, if it names one
    reason: Reason | None = None  # why it ended, or why it was last stopped
    attempt: int = 1
    retries_used: int = 0
    preempted_count: int = 0
    retry: Retry = field(default_factory=Retry)
    not_before: int = 0
    bypassed: int = 0
    withhold: Withhold | None = None
    earmark: Earmark | None = None
    lease: int | None = bounds.LEASE_DEFAULT
    lease_until: int | None = None
    shape: Shape | None = None  # None: one task, on any node
    work: Work | None = None  # what agents run; without it a client holds the units
    stop_policy: StopPolicy = PLAIN
    saved: Saved | None = None  # the resume point of its next attempt
    pin: Pin | None = None  # the folders at which its next attempt may start
    left_count: int = 0  # attempts in a row that left with exit code 75 and saved nothing
    lost_count: int = 0  # attempts that a machine ended
    terms: Terms = USUAL
    part_of: str | None = None  # the first of the independent tasks that were submitted together
    array_task: int | None = None  # its number in its array
    owner: str = ""
    created: str = ""

    # Each of these has a column with its own name.
    walltime: int | None = declared(
        Duration(), "Seconds after which it ends for certain.", None, example=3600
    )
    on_silence: OnSilence | None = declared(
        Word(OnSilence),
        "Absent: `keep` beside the only server, else `stop`.",
        None,
    )
    labels: Mapping[str, str] = declared(
        Labels(),
        "Texts by name, for people and for finding it.",
        default_factory=dict,
        example={"job": "train"},
        decides=False,
    )
    comment: str = declared(
        Text(bounds.COMMENT_LENGTH_MAX),
        "What people should know of it; printable, on one line.",
        "",
        example="the run for Friday's demo",
        decides=False,
    )
    array: str = declared(
        Numbers(),
        "Tasks that are alike but for their number: 0-99, or 0-99%10 for at most 10 at once.",
        "",
        example="",
    )
    after: tuple[str, ...] = declared(
        References(bounds.DEPENDENCIES_MAX),
        "It starts when these requests have ended well, and is cancelled if one does not.",
        (),
        example=[],
    )
    after_any: tuple[str, ...] = declared(
        References(bounds.DEPENDENCIES_MAX),
        "It starts when these requests have ended, well or not.",
        (),
        example=[],
    )

    @property
    def waiting(self) -> bool:
        return self.status in WAITING

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def cancelled(self) -> bool:
        """Whether its end was asked for, also while its holder is still stopping."""
        return self.reason is not None and self.reason.code is Code.CANCELLED

    @property
    def tasks(self) -> int:
        return 1 if self.shape is None else self.shape.tasks

    @property
    def ref(self) -> str:
        """Its name for people: its id, or for a task of an array the array's id and the task's
        number.
        """
        if self.array_task is None or self.part_of is None:
            return self.id
        return task_ref(self.part_of, self.array_task)

    @property
    def at_once(self) -> int | None:
        """The number of tasks of its array that may run at once; None: as many as fit."""
        return parse_array(self.array).at_once if self.array else None

    @property
    def age(self) -> tuple[int, int]:
        """The order within equal standing: older first."""
        return (self.submitted_at, self.index)

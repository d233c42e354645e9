"""The interface of a cluster to a bridge: four calls. All else is the same for every cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from cede.model.errors import CedeError


class Unreachable(CedeError):
    """The cluster did not answer, or its answer does not say what it did: ask again later."""


class NotTaken(CedeError):
    """The cluster refused a job, and will refuse it again."""


class JobState(StrEnum):
    """How far a job is in its cluster."""

    WAITING = "waiting"
    RUNNING = "running"  # or about to begin or to end: it holds its nodes
    OVER = "over"


class End(StrEnum):
    """The cause of the end of a job that is over."""

    ITSELF = "itself"  # its script
    FAILED = "failed"  # the cluster, by its own doing: a node failed, a job of others came first
    ENDED = "ended"  # the cluster, because a user or a bound said so


@dataclass(frozen=True, slots=True)
class Job:
    """A job of this bridge as its cluster shows it. `is_others`: it waits only for nodes that
    others hold; `is_ending`: it leaves, and how it ended is known only when it has.
    """

    id: str
    name: str
    job_state: JobState
    state: str  # in the cluster's own word
    why: str = ""  # why it waits
    end: End | None = None
    is_others: bool = False
    is_ending: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """A node of the cluster. `held` is all that is allocated on it, also to the bridge's jobs;
    `away` says why it takes no work, and is empty when it does; `holders` names outside jobs.
    """

    name: str
    amounts: Mapping[str, int]
    held: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    away: str = ""
    holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """The cluster at one instant; jobs are those with this bridge's mark."""

    machines: tuple[Machine, ...]
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job to be submitted. `tasks` has the number of tasks of each node; `amounts` are of one
    task. On each node `command` runs once. `user` is the account that it runs as, with its own
    `group`; None: the bridge's.
    """

    name: str
    tasks: Mapping[str, int]
    amounts: Mapping[str, int]
    command: Sequence[str]
    directory: str
    output: str
    seconds: float | None = None
    user: str | None = None
    group: str = ""


class Cluster(Protocol):
    """A cluster. `mark` tells the jobs of one bridge from all others."""

    mark: str
    kind: str

    def look(self) -> Seen:
        """Return the nodes, their holders and the state of the bridge's jobs; or raise
        `Unreachable`."""

    def submit(self, wanted: Wanted) -> str:
        """Submit a job on exactly these nodes and return its id; or raise `NotTaken`, or
        `Unreachable`: then it may have been taken all the same.
        """

    def find(self, name: str) -> list[Job]:
        """Return the jobs of that name with this bridge's mark, also those that are over, as far
        as the cluster knows; or raise `Unreachable`.
        """

    def cancel(self, ids: Sequence[str], *, kill: bool = False) -> None:
        """End these jobs, at once with `kill`, ignoring those that are over; or raise
        `Unreachable`.
        """

"""What a bridge needs of a cluster: four calls. All else is the same for every cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from cede.model.errors import CedeError


class Unreachable(CedeError):
    """The cluster did not answer, or not so that we know what it did: ask again later."""


class NotTaken(CedeError):
    """The cluster refused a job, and will refuse it again."""


class Standing(StrEnum):
    """How a job stands in its cluster."""

    WAITING = "waiting"
    RUNNING = "running"  # or about to begin or to end: it holds its nodes
    OVER = "over"


class End(StrEnum):
    """Who ended a job that is over."""

    ITSELF = "itself"  # its script
    FAILED = "failed"  # the cluster, by its own doing: a node failed, a job of others came first
    ENDED = "ended"  # the cluster, because somebody or a bound said so


@dataclass(frozen=True, slots=True)
class Job:
    """A job of ours as its cluster shows it. `is_others`: it waits only for what others hold;
    `is_ending`: it leaves, and how is known only when it has.
    """

    id: str
    name: str
    standing: Standing
    state: str  # in the cluster's own word
    why: str = ""  # why it waits
    end: End | None = None
    is_others: bool = False
    is_ending: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """A node of the cluster. `held` is everything that is allocated on it, also to jobs of ours;
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
    """The cluster at one instant; jobs are those with our mark."""

    machines: tuple[Machine, ...]
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job to be submitted. `tasks` are its nodes, and how many tasks each has; `amounts` are of
    one task. On each node `command` runs once. `user` None: as whom the bridge runs; else `group`
    is that account's own.
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
    """`mark` tells the jobs of one bridge from all others."""

    mark: str
    kind: str

    def look(self) -> Seen:
        """What there is, who holds it and how our jobs stand; or `Unreachable`."""

    def submit(self, wanted: Wanted) -> str:
        """The id of a new job on exactly these nodes; `NotTaken`, or `Unreachable`: then it may
        have been taken all the same.
        """

    def find(self, name: str) -> list[Job]:
        """The jobs of that name with our mark, also those that are over, as far as it knows; or
        `Unreachable`.
        """

    def cancel(self, ids: Sequence[str], *, kill: bool = False) -> None:
        """End these jobs, at once with `kill`. Those that are over already do no harm; or
        `Unreachable`.
        """

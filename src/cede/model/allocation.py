"""An allocation: capacity held by one attempt of a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cede.model.amounts import Amounts
from cede.model.lifecycle import LEAVING, AllocationState
from cede.model.reason import Reason
from cede.model.shape import Footprint
from cede.model.stopping import Ask, StopProgress


class Phase(StrEnum):
    """The phase of a member, as its agent last reported it."""

    ASSIGNED = "assigned"
    STARTED = "started"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Member:
    """One task of an allocation, on its node. `exit_code` is 128 + n for signal n."""

    task: int
    node_id: str
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    phase: Phase = Phase.ASSIGNED
    saved: str = ""  # the checkpoint that it wrote last
    exit_code: int | None = None
    cause: str = ""  # how it ended, as its agent put it
    ids: tuple[str, ...] = ()  # its verified checkpoints, oldest first
    looked: bool = False  # its agent has looked for checkpoints before the start
    answered: int = 0  # the number of the last hint that it answered with a checkpoint
    reach: tuple[int, int] = (0, 0)  # a hint, and the first step at which it can save for it
    unread: bool = False  # the checkpoints that it left were not verified in time


@dataclass(frozen=True, slots=True)
class Allocation:
    """`index` is the place of its grant in the journal: later grants are newer."""

    id: str
    request_id: str
    pool_id: str
    policy_id: str
    amounts: Amounts
    preemptible: bool
    attempt: int
    index: int
    allocated_at: int
    state: AllocationState = AllocationState.GRANTED
    started_at: int | None = None
    walltime: int | None = None
    lease_until: int | None = None
    deadline: int | None = None  # the instant at which its stop ends, whatever its holder reports
    told: bool = False  # its holder has learned that it must stop
    taken_for: str | None = None  # the beneficiary
    reason: Reason | None = None  # the rule under which it was taken
    ended_at: int | None = None
    members: tuple[Member, ...] = ()  # one per task, in a pool of nodes
    stop_progress: StopProgress | None = None  # how far its stop has come
    asked: Ask | None = None  # the last ask to save itself and go on
    announced: bool = False  # this attempt was told at least once that it must stop
    # Milliseconds of held time whose work is lost: since the last checkpoint, of an attempt that
    # was stopped for a beneficiary or ended by its machine.
    lost: int = 0
    resume: str | None = ""  # the checkpoint it starts from; None until its agents have looked

    @property
    def live(self) -> bool:
        return self.state is not AllocationState.ENDED

    @property
    def leaving(self) -> bool:
        return self.state in LEAVING

    @property
    def may_go_on(self) -> bool:
        """Whether a victim can still be let go on: it was told to save itself at most, not to stop,
        and none of its tasks has left.
        """
        if not self.leaving or self.taken_for is None:
            return False
        if self.told and self.state is not AllocationState.CHECKPOINTING:
            return False
        for each in self.members:  # noqa: SIM110 - asked for every victim, most have none
            if each.phase is Phase.ENDED and each.exit_code != 0:
                return False
        return True

    @property
    def yields(self) -> bool:
        """Whether it has given up its place in the share: a leaving holder fills none."""
        return self.leaving

    @property
    def open_ask(self) -> Ask | None:
        """The ask that it has not answered yet."""
        return None if self.asked is None or self.asked.over else self.asked

    @property
    def common(self) -> str:
        """The newest checkpoint that all its tasks have."""
        first, *others = self.members
        shared = (id for id in reversed(first.ids) if all(id in each.ids for each in others))
        return next(shared, "")

    @property
    def each(self) -> Amounts:
        """The amounts that each of its members holds."""
        if len(self.members) == 1:
            return self.amounts
        return {key: amount // len(self.members) for key, amount in self.amounts.items()}

    @property
    def footprint(self) -> Footprint:
        if len(self.members) == 1:  # most
            return ((self.members[0].node_id, 1),)
        return footprint(each.node_id for each in self.members) if self.members else ()

    @property
    def ends_at(self) -> int | None:
        """The latest instant to which its walltime lets it run; None without a walltime."""
        if self.walltime is None:
            return None
        return (self.allocated_at if self.started_at is None else self.started_at) + self.walltime


def footprint(node_ids: Iterable[str]) -> Footprint:
    """The number of tasks on each node."""
    nodes = tuple(node_ids)
    if len(nodes) == 1:
        return ((nodes[0], 1),)
    return tuple(Counter(nodes).items())


def allocation_id(request_id: str, attempt: int) -> str:
    """The id is made from the request and the attempt, so that deciding needs no randomness."""
    return f"{request_id}.{attempt}"

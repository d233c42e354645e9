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
    """What a member's agent last said of it."""

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
    saved: str = ""  # the checkpoint it wrote last
    exit_code: int | None = None
    cause: str = ""  # how it ended, in its agent's word
    ids: tuple[str, ...] = ()  # verified checkpoints that it has, oldest first
    looked: bool = False  # whether its agent has looked for them before the start
    answered: int = 0  # the last hint that it answered with a checkpoint
    reach: tuple[int, int] = (0, 0)  # a hint, and the first step at which it can save for it
    unread: bool = False  # it ended, and nobody has read what it left in its folder


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
    deadline: int | None = None  # when its stop is over, whatever it says
    told: bool = False  # whether its holder has learned that it must stop
    taken_for: str | None = None  # the beneficiary
    reason: Reason | None = None  # the rule under which it was taken
    ended_at: int | None = None
    members: tuple[Member, ...] = ()  # one per task, in a pool of nodes
    stop_progress: StopProgress | None = None  # where its stop has come to
    asked: Ask | None = None  # to save itself and go on
    announced: bool = False  # whether this attempt was ever told that it must stop
    # Milliseconds of its time whose work nobody has: since its last checkpoint, of what was stopped
    # for somebody or ended by its machine.
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
        """Whether a victim could still be let go on: it was not told to stop, at most to save, and
        no task of it has left.
        """
        if not self.leaving or self.taken_for is None:
            return False
        if any(each.phase is Phase.ENDED and each.exit_code != 0 for each in self.members):
            return False
        return not self.told or self.state is AllocationState.CHECKPOINTING

    @property
    def yields(self) -> bool:
        """Whether it has given up its place in the share: who is on its way out fills none."""
        return self.leaving

    @property
    def open_ask(self) -> Ask | None:
        """What it is asked now, and has not answered."""
        return None if self.asked is None or self.asked.over else self.asked

    @property
    def common(self) -> str:
        """The newest checkpoint that all of its tasks have."""
        first, *others = self.members
        shared = (id for id in reversed(first.ids) if all(id in each.ids for each in others))
        return next(shared, "")

    @property
    def each(self) -> Amounts:
        """What one of its members holds."""
        if len(self.members) == 1:
            return self.amounts
        return {key: amount // len(self.members) for key, amount in self.amounts.items()}

    @property
    def footprint(self) -> Footprint:
        return footprint(each.node_id for each in self.members) if self.members else ()

    @property
    def ends_at(self) -> int | None:
        """The latest instant at which its walltime lets it run; None when nothing bounds it."""
        if self.walltime is None:
            return None
        return (self.allocated_at if self.started_at is None else self.started_at) + self.walltime


def footprint(node_ids: Iterable[str]) -> Footprint:
    """How many tasks sit on which node."""
    nodes = tuple(node_ids)
    if len(nodes) == 1:
        return ((nodes[0], 1),)
    return tuple(Counter(nodes).items())


def allocation_id(request_id: str, attempt: int) -> str:
    """Ids of allocations are made from what they are of, so that deciding needs no dice."""
    return f"{request_id}.{attempt}"

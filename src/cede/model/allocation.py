"""An allocation: capacity held by one attempt of a request."""

from __future__ import annotations

from dataclasses import dataclass

from cede.model.amounts import Amounts
from cede.model.lifecycle import LEAVING, AllocationState
from cede.model.reason import Reason


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
    deadline: int | None = None  # when its parting is over, whatever it says
    told: bool = False  # whether its holder has learned that it must stop
    taken_for: str | None = None  # the beneficiary
    reason: Reason | None = None  # the rule under which it was taken
    ended_at: int | None = None

    @property
    def live(self) -> bool:
        return self.state is not AllocationState.ENDED

    @property
    def leaving(self) -> bool:
        return self.state in LEAVING

    @property
    def ends_at(self) -> int | None:
        """The latest instant at which its walltime lets it run; None when nothing bounds it."""
        if self.walltime is None:
            return None
        return (self.allocated_at if self.started_at is None else self.started_at) + self.walltime


def allocation_id(request_id: str, attempt: int) -> str:
    """Ids of allocations are made from what they are of, so that deciding needs no dice."""
    return f"{request_id}.{attempt}"

"""A small cluster on the pure engine: nodes that beat, teams, jobs that end after their seconds.

Time is virtual. Every node sends its heartbeat once a period, each at a phase of its own. A job
that is told to stop does so at once, and its next attempt begins from nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from cede.engine.admin import edits, fleet
from cede.engine.audit import audit
from cede.engine.decide import decide
from cede.engine.lifecycle import commands
from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.amounts import Amounts
from cede.model.lifecycle import RequestStatus
from cede.model.request import Preemptions, Request, Retry
from cede.model.shape import Shape
from cede.model.subject import Subject
from cede.model.terms import parse_terms

POOL = "nodes"
SECOND = 1_000


class Cluster:
    """One fair-share pool of nodes that are alike, and everything that happens in it."""

    def __init__(
        self, nodes: int, has: Amounts, *, period: int = 5 * SECOND, **settings: Any
    ) -> None:
        self.state = State()
        self.now = 0
        self.period = period
        self.seconds: dict[str, int] = {}  # how long a job takes, by task group
        self.granted = Counter[str]()  # how often jobs of a task group began
        self.preempted: dict[str, list[int]] = {}  # how long each had run, by task group
        self.events: list[Any] = []
        edits.create_pool(
            self.state,
            id=POOL,
            name=POOL,
            nodes={"pool": POOL},
            preset="fair_share",
            settings=settings,
        )
        self._beats = {}
        for number in range(nodes):
            self.register(f"n{number}", has)
            self._beats[f"n{number}"] = number * period // nodes

    # Doing ------------------------------------------------------------------------------------

    def register(self, name: str, has: Amounts) -> None:
        """A node comes, or comes back with something else."""
        fleet.register(
            self.state,
            id=name,
            name=name,
            amounts=has,
            labels={"pool": POOL, "host": name},
            heartbeat=self.period,
            now=self.now,
            caller=fleet.Caller(own=True),
        )

    def team(self, name: str, **policy: Any) -> None:
        edits.attach_policy(
            self.state, id=name, pool_id=POOL, subject=Subject("team", name), **policy
        )

    def submit(
        self,
        team: str,
        name: str,
        each: Amounts,
        *,
        jobs: int = 1,
        seconds: int = 1_000_000,
        host: str | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        """One request with so many independent tasks: they are named `name.0`, `name.1`, …"""
        self.seconds[name] = seconds * SECOND
        self.preempted.setdefault(name, [])
        for number in range(jobs):
            submission = commands.Submission(
                id=f"{name}.{number}",
                subject=Subject("team", team),
                amounts=each,
                shape=Shape(each, labels={} if host is None else {"host": host}),
                retry=Retry(max_retries=1, preemptions=Preemptions.FREE),
                lease=None,
                terms=parse_terms(settings=settings),
                part_of=f"{name}.0",
                unpooled="refuse",
            )
            commands.submit(self.state, submission, self.now)

    def save(self, job: str) -> None:
        """A job tells that its progress is safe."""
        allocation = self._allocation(job)
        said = commands.Said("saved", checkpoint=f"{job}@{self.now}")
        commands.said(self.state, job, said, self.now, attempt=allocation.attempt)

    def run(self, until: int) -> None:
        """Let time pass, in seconds from the start, stopping at everything that is due."""
        end = until * SECOND
        self._settle()
        while self.now < end:
            self.now = min([end, *self._next_instants()])
            for name, at in self._beats.items():
                if (self.now - at) % self.period == 0:
                    fleet.heard(self.state, name, self.now)
            for job in self._over():
                commands.release(self.state, job.id, self.now, outcome="done")
            self._settle()

    # Looking ----------------------------------------------------------------------------------

    def running(self, name: str) -> list[str]:
        """The jobs of a request that hold something and were not told to stop."""
        return [each.id for each in self._mine(name) if self._stays(each.id)]

    def node_of(self, job: str) -> str:
        return self._allocation(job).members[0].node_id

    def ended_well(self, name: str) -> bool:
        """Whether every job of a request has ended; none is ended but for being done."""
        return not self._mine(name)

    def finished(self) -> bool:
        return not self.state.requests

    # Time -------------------------------------------------------------------------------------

    def _next_instants(self) -> list[int]:
        due = self.state.timers.next()
        beats = [self.now + 1 + (at - self.now - 1) % self.period for at in self._beats.values()]
        ends = [self._end(each) for each in self.state.allocations.values() if each.live]
        return [max(each, self.now + 1) for each in (*beats, *ends, *([due] if due else []))]

    def _settle(self) -> None:
        """Passes until nothing more is due now; who is told to stop does."""
        while True:
            plan = decide(self.state, self.now)
            self._remember()
            told = [each for each in self.state.requests.values() if _told(each)]
            for job in told:
                self._stop(job)
            if not told and not plan.again:
                break
        if plan.changed:
            assert not audit.check(self.state)

    def _remember(self) -> None:
        changes = self.state.drain()
        self.events += changes.events
        self.granted.update(
            _task_group(each.request_id) for each in changes.events if each.kind == "granted"
        )

    def _stop(self, job: Request) -> None:
        allocation = self._allocation(job.id)
        self.preempted[_task_group(job.id)].append(self.now - allocation.allocated_at)
        commands.release(self.state, job.id, self.now, outcome="stopped")

    def _over(self) -> list[Request]:
        return [
            self.state.requests[each.request_id]
            for each in list(self.state.allocations.values())
            if each.live and self._end(each) <= self.now
        ]

    def _end(self, allocation: Allocation) -> int:
        return allocation.allocated_at + self.seconds[_task_group(allocation.request_id)]

    def _mine(self, name: str) -> list[Request]:
        return [each for each in self.state.requests.values() if _task_group(each.id) == name]

    def _stays(self, job: str) -> bool:
        allocation = self.state.allocation_of(job)
        return allocation is not None and not allocation.leaving

    def _allocation(self, job: str) -> Allocation:
        allocation = self.state.allocation_of(job)
        assert allocation is not None, f"{job} holds nothing"
        return allocation


def _told(request: Request) -> bool:
    return request.status is RequestStatus.PREEMPTING


def _task_group(job: str | None) -> str:
    return str(job).partition(".")[0]

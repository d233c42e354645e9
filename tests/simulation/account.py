"""What must hold, kept apart from everything that is judged by it.

It knows what was acknowledged to whom, which processes really run on which devices, and what each
client believes that it holds. None of that comes from the database.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cede.agent.values import Key, Order
from cede.engine.audit import audit
from tests.simulation.answers import Answer

# What a server may refuse a call with, while something is wrong or somebody else was faster.
REFUSALS = (401, 404, 409, 429, 503, 507)


@dataclass(eq=False)
class Account:
    time: Callable[[], float]
    problems: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    # What runs, by attempt: the node and its devices.
    running: dict[Key, tuple[str, Order]] = field(default_factory=dict)
    launches: set[Key] = field(default_factory=set)
    # Acknowledged: request ids by idempotency key, how they ended, and checkpoints.
    submitted: dict[str, str] = field(default_factory=dict)
    released: dict[str, str] = field(default_factory=dict)
    folder: dict[str, list[str]] = field(default_factory=dict)
    safe: dict[str, int] = field(default_factory=dict)
    held: dict[str, tuple[int, float]] = field(default_factory=dict)
    epoch: int = 0
    index: int = 0

    def broken(self, what: str) -> None:
        self.problems.append(f"{self.time():.3f}: {what}")

    def count(self, what: str, by: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + by

    # Servers

    def committed(self, epoch: int, index: int, state: Any) -> None:
        """After each turn of a writer."""
        self.count("turns")
        if (epoch, index) < (self.epoch, self.index):
            self.broken(f"index {index} of epoch {epoch} after {self.index} of {self.epoch}")
        self.epoch, self.index = epoch, index
        for problem in audit.check(state):
            self.broken(problem)

    def refused(self, answer: Answer) -> None:
        if answer.status not in REFUSALS:
            self.broken(f"a call was answered {answer.status}: {answer.body}")

    def refused_or_done(self, answer: Answer) -> None:
        if answer.status >= 400:
            self.refused(answer)

    # Nodes

    def launched(self, node: str, order: Order) -> None:
        key = order.key
        self.count("launches")
        if key in self.launches:
            self.broken(f"{key.directory} was started twice")
        self.launches.add(key)
        for other, (where, running) in self.running.items():
            if where == node and running.devices & order.devices:
                self.broken(f"S3: {other.directory} and {key.directory} have a device of {node}")
            if running.request == order.request and other.allocation != key.allocation:
                self.broken(f"{other.directory} and {key.directory} of one request run at once")
        self.running[key] = (node, order)
        self._check_resume(order)

    def _check_resume(self, order: Order) -> None:
        """S17: what was saved, and known to be saved, is not done again."""
        resume = str(order.body.get("resume") or "")
        at = int(resume.removeprefix("c")) if resume else 0
        if at < self.safe.get(order.request, 0):
            self.broken(
                f"{order.key.directory} resumes at {at}, {self.safe[order.request]} is safe"
            )

    def stopped(self, order: Order) -> None:
        self.running.pop(order.key, None)

    def checkpoints(self, request: str) -> tuple[str, ...]:
        return tuple(reversed(self.folder.get(request, [])))

    def saved(self, order: Order) -> str:
        """A new checkpoint of the request is in the folder."""
        saved = self.folder.setdefault(order.request, [])
        saved.append(f"c{len(saved) + 1}")
        return saved[-1]

    def acknowledged_save(self, request: str, checkpoint: str) -> None:
        self.count("saves acknowledged")
        number = int(checkpoint.removeprefix("c"))
        self.safe[request] = max(self.safe.get(request, 0), number)

    # Clients

    def acknowledged_submission(self, key: str, request: str) -> None:
        if self.submitted.setdefault(key, request) != request:
            self.broken(f"S19: key {key} made {self.submitted[key]} and {request}")

    def holds(self, client: str, amount: int, until: float, capacity: int) -> None:
        """A client may use so many units until then, on the real clock."""
        self.held[client] = (amount, until)
        now = self.time()
        total = sum(amount for amount, until in self.held.values() if until > now)
        if total > capacity:
            self.broken(f"S1: {total} of {capacity} units are held: {self.held}")

    def lets_go(self, client: str) -> None:
        self.held.pop(client, None)

    def at_the_end(self, found: dict[str, str]) -> None:
        """`found` is the status of every request that the server knows."""
        for key, request in self.submitted.items():
            if request not in found:
                self.broken(f"acknowledged submission {key} is lost: {request}")
        for request, status in found.items():
            if status not in ("released", "failed", "cancelled", "rejected", "preempted"):
                self.broken(f"liveness: {request} is still {status}")
            if request in self.released and status != self.released[request]:
                self.broken(f"{request} was acknowledged as {self.released[request]}, is {status}")
        if self.running:
            self.broken(f"liveness: still running: {[key.directory for key in self.running]}")

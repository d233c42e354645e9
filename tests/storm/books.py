"""The second set of books of a storm: what servers acknowledged, written down by who was told.

Nothing here asks cede how it went before the storm is over. Then the two accounts are compared.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_MISTAKES = ("a handler failed", "the pass failed", "a listener failed", "the state is unsound")


@dataclass(frozen=True, slots=True)
class Held:
    """Units that a client surely held: from the answer that granted them until it sent their
    release, or its lease was over, whichever was first.
    """

    request: str
    units: int
    begin: float
    end: float


@dataclass
class Books:
    """Written by many threads."""

    operations: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)  # the request that each key made
    ends: dict[str, str] = field(default_factory=dict)  # the acknowledged end of a request
    priorities: dict[str, int] = field(default_factory=dict)  # of a policy, the last one
    revoked: list[str] = field(default_factory=list)  # tokens
    held: list[Held] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str) -> None:
        with self._lock:
            self.operations[what] += 1

    def wrong(self, what: str) -> None:
        with self._lock:
            self.problems.append(what)

    def made(self, key: str, request: str) -> None:
        """A submission was acknowledged; under one key there is one request."""
        self.count("submitted")
        with self._lock:
            if self.keys.setdefault(key, request) != request:
                self.problems.append(f"doubled: {key} is {self.keys[key]} and {request}")

    def ended(self, request: str, status: str) -> None:
        self.count(status)
        with self._lock:
            self.ends[request] = status


def over_capacity(held: Iterable[Held], capacity: int) -> Iterator[str]:
    """The moments at which clients together surely held more than there is."""
    changes = [
        change for each in held for change in ((each.end, -each.units), (each.begin, each.units))
    ]
    total = 0
    for at, units in sorted(changes):
        total += units
        if units > 0 and total > capacity:
            yield f"twice: {total} of {capacity} units were held at {at:.3f}"


def complaints(log: str) -> Iterator[str]:
    """What a server says of its own mistakes, also where no caller noticed."""
    for line in log.splitlines():
        if any(each in line for each in _MISTAKES):
            yield f"log: {line[:2000]}"


def compare(books: Books, found: dict[str, list[str]], statuses: dict[str, str]) -> Iterator[str]:
    """What was acknowledged against what there is: the requests of each key, and their statuses."""
    for key, request in books.keys.items():
        there = found.get(key, [])
        if request not in there:
            yield f"lost: {request} of {key} was acknowledged"
        if len(there) > 1:
            yield f"doubled: {key} is {there}"
    for key in found.keys() - books.keys.keys():
        yield f"unasked: {key} was never acknowledged to who waits for it"
    for request, status in books.ends.items():
        if statuses.get(request) not in (None, status):
            yield f"undone: {request} was {status}, and is {statuses[request]}"

"""The hand-over between callers and the writer: one lock, one list, one wake-up per batch in each
direction.

Handing over every command by itself halves the rate. So callers append to a list that the writer
takes whole. An event loop wakes the writer once it has heard all who called in the same turn, and
answers go back to it in one call for all of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import Any

from cede.model.errors import CedeError
from cede.store.values import Idempotency


class Overloaded(CedeError):
    """More commands wait than the writer can take; try again in a moment."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} commands are waiting; try again in a moment")


class Stopping(CedeError):
    """The server is on its way out and takes no more commands."""

    def __init__(self) -> None:
        super().__init__("the server is stopping")


@dataclass(slots=True, eq=False)
class Job:
    """A command (or a query), and the future of whoever waits for it. What a command that is not
    `lasting` changes need not outlast this server.
    """

    run: Callable[..., Any]
    future: Future[Any] | asyncio.Future[Any]
    query: bool = False
    idempotency: Idempotency | None = None
    answer: Callable[..., Any] | None = None
    urgent: bool = False  # keeps a lease: ahead of all that is not
    weight: int = 1  # of how many usual commands it takes the time
    lasting: bool = True
    result: Any = None
    error: BaseException | None = None


class Queue:
    def __init__(self, most: int) -> None:
        self._most = most
        self._ready = threading.Condition(threading.Lock())
        self._jobs: list[Job] = []
        self._urgent: list[Job] = []
        self._closed = False
        self._waking: set[asyncio.AbstractEventLoop] = set()  # those that will, in their next turn

    def __len__(self) -> int:
        return len(self._jobs) + len(self._urgent)

    def put(self, job: Job) -> None:
        """Let the writer have a job; the event loop of an asyncio future, where this is called,
        wakes it in its next turn.
        """
        with self._ready:
            if self._closed:
                raise Stopping
            jobs = self._urgent if job.urgent else self._jobs
            if len(jobs) >= self._most:
                raise Overloaded(len(jobs))
            jobs.append(job)
            if isinstance(job.future, Future):
                self._ready.notify()
                return
        loop = job.future.get_loop()
        if loop not in self._waking:
            self._waking.add(loop)
            loop.call_soon(self._wake, loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        self._waking.discard(loop)
        with self._ready:
            self._ready.notify()

    def take(self, most: int, seconds: float | None) -> list[Job]:
        """Take the waiting jobs, at once or after at most `seconds`: all urgent ones, then others
        up to the weight `most`, one at least.

        None are returned when time is up or the queue is closed.
        """
        with self._ready:
            if not len(self) and not self._closed:
                self._ready.wait(seconds)
            count = weight = 0
            while count < len(self._jobs) and (not count or weight < most):
                weight += self._jobs[count].weight
                count += 1
            jobs, self._jobs = self._urgent + self._jobs[:count], self._jobs[count:]
            self._urgent = []
            return jobs

    @property
    def finished(self) -> bool:
        """Closed, and nothing left in it."""
        return self._closed and not len(self)

    def close(self) -> None:
        with self._ready:
            self._closed = True
            self._ready.notify()


def resolve(jobs: Iterable[Job]) -> None:
    """Give every job's outcome to whoever waits.

    Directly to threads, in one call to each event loop.
    """
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        if isinstance(job.future, Future):
            _settle(job)
        else:
            by_loop.setdefault(job.future.get_loop(), []).append(job)
    for loop, some in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle_all, some)


def _settle_all(jobs: list[Job]) -> None:
    for job in jobs:
        _settle(job)


def _settle(job: Job) -> None:
    future = job.future
    if future.cancelled():
        return
    try:
        if job.error is not None:
            future.set_exception(job.error)
        else:
            future.set_result(job.result)
    except (InvalidStateError, asyncio.InvalidStateError):
        pass  # given up on between the two lines: the command is committed all the same

"""The runs of dynamic pipelines in this process: which run a step belongs to, and its tasks.

A run is found by its context: the pipeline's own code, its coroutines and tasks,
`asyncio.to_thread`. The threads of a pool have no context of their caller's; their steps belong to
the only run of this process, and with several runs it is an error. No step bypasses the pools
because it was called from another place: it has a run, or it is an error.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from uuid import uuid4

from cede.client.client import Client
from cede.client.errors import CedeClientError
from cede.client.futures import StepFuture
from cede.model import bounds

log = logging.getLogger("cede")

# In the environment while a run lasts: a process that starts meanwhile has no run of its own.
MARK = "CEDE_PIPELINE_RUN"

_current: ContextVar[Run | None] = ContextVar("cede_run", default=None)
_plain: ContextVar[bool] = ContextVar("cede_plain", default=False)
_alive: list[Run] = []
_lock = threading.Lock()


class Task:
    """One call of a step, from before its request until after its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancel: Callable[[], None] | None = None
        self._is_stopped = False

    def runs(self, cancel: Callable[[], None]) -> None:
        """Note that the task has begun; `cancel` ends it."""
        with self._lock:
            self._cancel = cancel
            if self._is_stopped:
                cancel()

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            if self._cancel is not None:
                self._cancel()


class Run:
    """One run of a dynamic pipeline, while it lasts. Any thread may use it."""

    def __init__(self, pipeline: str, orchestrator: str | None, client: Client | None) -> None:
        self.pipeline = pipeline
        self.name = f"{pipeline}-{uuid4().hex[:8]}"
        self.orchestrator = orchestrator
        self._client, self._is_ours = client, client is None
        self._said: set[str] = set()
        self._changed = threading.Condition()
        self._tasks: set[Task] = set()
        self._futures: list[StepFuture[object]] = []
        self._is_over = False
        self._threads: ThreadPoolExecutor | None = None
        self._process = os.getpid()

    def connection(self) -> Client:
        with self._changed:
            if self._client is None:
                self._client = Client()
            return self._client

    def say_once(self, text: str) -> None:
        with self._changed:
            is_new = text not in self._said
            self._said.add(text)
        if is_new:
            log.warning(text)

    @contextmanager
    def under_way(self, step: str, task: Task) -> Iterator[None]:
        """Register a task for the length of a block: the run waits for its end."""
        self.add(step, task)
        try:
            yield
        finally:
            self.remove(task)

    def add(self, step: str, task: Task) -> None:
        self.check(step)
        with self._changed:
            if self._is_over:
                raise CedeClientError(
                    f"step {step} is called after its pipeline {self.pipeline} has ended",
                    fix="let the pipeline wait for what it starts",
                )
            self._tasks.add(task)

    def remove(self, task: Task) -> None:
        with self._changed:
            self._tasks.discard(task)
            self._changed.notify_all()

    def start(self, future: StepFuture[object], work: Callable[[], None]) -> None:
        """Do `work` in a thread of the run's own."""
        with self._changed:
            self._futures.append(future)
            if self._threads is None:
                most = bounds.STEPS_AT_ONCE_MAX
                self._threads = ThreadPoolExecutor(most, thread_name_prefix="cede-step")
            self._threads.submit(work)

    def check(self, step: str) -> None:
        """Raise in a forked process: its copy of the run has neither our threads nor our
        connections."""
        if os.getpid() != self._process:
            raise _elsewhere(step, self.pipeline)

    def wait(self) -> None:
        """Wait until no task is under way; raise the error of a future that was never looked at."""
        with self._changed:
            self._changed.wait_for(lambda: not self._tasks)
            self._is_over = True
        for each in self._futures:
            if (error := each.unseen) is not None:
                raise error

    def stop(self) -> None:
        """Stop all tasks, and wait for their ends."""
        with self._changed:
            self._is_over = True
            tasks = list(self._tasks)
        for each in tasks:
            each.stop()
        with self._changed:
            self._changed.wait_for(lambda: not self._tasks)

    def close(self) -> None:
        with self._changed:
            self._is_over = True
        if self._threads is not None:
            self._threads.shutdown(wait=False)
        if self._is_ours and self._client is not None:
            self._client.close()


@contextmanager
def entered(run: Run) -> Iterator[None]:
    """Make this the run of steps that are called in the block."""
    with _lock:
        _alive.append(run)
        os.environ[MARK] = run.name
    current, plain = _current.set(run), _plain.set(False)
    try:
        yield
    finally:
        _plain.reset(plain)
        _current.reset(current)
        with _lock:
            _alive.remove(run)
            if _alive:
                os.environ[MARK] = _alive[-1].name
            else:
                os.environ.pop(MARK, None)


@contextmanager
def plain() -> Iterator[None]:
    """Make steps that are called in the block plain calls."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


def leave() -> None:
    """Make further steps plain calls, in a step's own process: one step, one request."""
    _alive.clear()
    _current.set(None)
    _plain.set(True)
    os.environ.pop(MARK, None)


def current(step: str) -> Run | None:
    """Return the run that a step called here belongs to; None where it is a plain call."""
    if _plain.get():
        return None
    run = _current.get() or _only(step)
    if run is None:
        log.info("step %s is called outside a pipeline: no request is made", step)
    else:
        run.check(step)
    return run


def _only(step: str) -> Run | None:
    with _lock:
        alive = list(_alive)
    if len(alive) > 1:
        names = ", ".join(each.pipeline for each in alive)
        raise CedeClientError(
            f"step {step} is called from a thread of which nobody knows the pipeline: {names} run",
            fix=f"use {step}.submit(…) or {step}.map(…), or asyncio.to_thread",
        )
    if not alive and (name := os.environ.get(MARK)):
        raise _elsewhere(step, name)
    return alive[0] if alive else None


def _elsewhere(step: str, pipeline: str) -> CedeClientError:
    return CedeClientError(
        f"step {step} is called in another process than its pipeline {pipeline}",
        fix=f"use {step}.map(…) in the pipeline: every step has a process of its own",
    )

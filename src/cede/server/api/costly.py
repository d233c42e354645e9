"""The gate in front of costly reads: computed once for all callers that ask the same, off the
writer, one of each kind at a time, bounded in number and in time (C10).

Callers with the same (query, scope) share one computation if it has not begun when they ask: the
answer is never older than their call. A read that took much of a processor rests before it is
computed again, so that all readers together use a part of one core only; each pays for it, up to a
bound.

A read that takes less than a fork does is computed on the writer's thread, between two commits,
judged by its last time; one with a search in it never is, because its cost may leap.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from time import thread_time
from typing import Any

from cede.engine.state.state import State
from cede.server import forked
from cede.server.api.errors import unavailable
from cede.server.api.limits import METER
from cede.server.api.problem import Problem
from cede.server.writer import Writer

# Beyond this many requests in the state a costly read may take longer than a fork.
SMALL_STATE = 200
# The cost of a fork to the writer, in seconds of a processor; in a child a read takes several times
# as long as without one, because every page that it touches is copied.
FORK_SECONDS = 0.05
CHILD_SECONDS = 0.4
# A read that took longer than a fork is forked for so long, and then tried in place again.
FORKED_SECONDS = 60.0
# The number of different reads for which that is known.
KNOWN_MAX = 256
# Different reads that may wait for their turn.
WAITING_MAX = 32
# Seconds of one computation on a busy machine, and of a place in the queue before it.
READ_SECONDS = 2 * forked.CPU_SECONDS
WAIT_SECONDS = 60
# A read that took more processor time than this rests so many times as long, at most so many
# seconds.
QUICK_SECONDS = 0.25
REST_TIMES = 4
REST_MAX = 10.0
# The most that one of them takes from a budget, in seconds: its callers share it.
SECONDS_PAID = 1.0

_PIECE = 1 << 20


@dataclass(slots=True)
class _Flight:
    """One computation that has not begun, and all calls that wait for it."""

    done: asyncio.Future[bytes]
    key: tuple[Any, ...]
    light: Callable[[State], bool] | None
    cost: float = 0.0  # in seconds of a processor


@dataclass(slots=True)
class Costly:
    """`ask` runs a read that makes the bytes of an answer."""

    writer: Writer
    monotonic: Callable[[], float]
    _waiting: dict[tuple[Any, ...], _Flight] = field(default_factory=dict)
    _not_before: dict[str, float] = field(default_factory=dict)
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _forked_until: dict[tuple[Any, ...], float] = field(default_factory=dict)

    async def ask(
        self,
        kind: str,
        scope: tuple[Any, ...],
        read: forked.Read,
        light: Callable[[State], bool] | None = None,
    ) -> bytes:
        """Return the answer of `read`, which depends on nothing but the state, the kind and the
        scope. It is `light` where it searches nothing and tries nothing.
        """
        key = (kind, *scope)
        flight = self._waiting.get(key)
        if flight is None:
            if len(self._waiting) >= WAITING_MAX:
                detail = f"{WAITING_MAX} costly reads are waiting already"
                raise unavailable("too_many_reads", detail, 2)
            flight = _Flight(asyncio.get_running_loop().create_future(), key, light)
            # A call that gives up must not make the loop complain about an exception never
            # retrieved.
            flight.done.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._waiting[key] = flight
            task = asyncio.create_task(self._fly(flight, kind, read))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.timeout(WAIT_SECONDS + READ_SECONDS):
                return await asyncio.shield(flight.done)
        except TimeoutError:
            raise _too_long() from None
        finally:
            METER.get().add(min(flight.cost, SECONDS_PAID))

    async def _fly(self, flight: _Flight, kind: str, read: forked.Read) -> None:
        try:
            async with self._turns.setdefault(kind, asyncio.Lock()):
                rest = self._not_before.get(kind, 0.0) - self.monotonic()
                if rest > 0:
                    await asyncio.sleep(rest)
                # Later callers would get an answer older than their call.
                del self._waiting[flight.key]
                answer = await self._compute(flight, read)
                if flight.cost > QUICK_SECONDS:
                    rest = min(flight.cost * REST_TIMES, REST_MAX)
                    self._not_before[kind] = self.monotonic() + rest
            flight.done.set_result(answer)
        except Exception as error:
            if self._waiting.get(flight.key) is flight:  # else it is a later caller's
                del self._waiting[flight.key]
            flight.done.set_exception(error)

    async def _compute(self, flight: _Flight, read: forked.Read) -> bytes:
        in_place = self._forked_until.get(flight.key, inf) <= self.monotonic()

        def start(state: State, now: int) -> bytes | tuple[int, int]:
            began = thread_time()
            try:
                light = in_place and flight.light is not None and flight.light(state)
                if light or len(state.requests) <= SMALL_STATE:
                    return read(state, now)
                return forked.fork_read(read, state, now)
            finally:
                flight.cost += thread_time() - began

        started = await self.writer.ask(start)
        if isinstance(started, bytes):
            if in_place and flight.cost > FORK_SECONDS:
                self._forked_until[flight.key] = self.monotonic() + FORKED_SECONDS
            return started
        answer = await _child(flight, *started)
        if flight.light is None:
            return answer
        if flight.cost > CHILD_SECONDS:
            self._forked_until.pop(flight.key, None)
        elif flight.key not in self._forked_until:
            if len(self._forked_until) >= KNOWN_MAX:
                self._forked_until.clear()
            self._forked_until[flight.key] = self.monotonic()
        return answer


async def _child(flight: _Flight, pid: int, out: int) -> bytes:
    """Return the answer of a forked child."""
    try:
        async with asyncio.timeout(READ_SECONDS):
            text = await _read_all(out)
        return forked.outcome_of(text)
    except (TimeoutError, forked.ReadFailed):
        raise _too_long() from None
    finally:
        os.kill(pid, signal.SIGKILL)  # it has written all, or its answer is not wanted
        _, _, used = await asyncio.to_thread(os.wait4, pid, 0)
        flight.cost += used.ru_utime + used.ru_stime


async def _read_all(out: int) -> bytes:
    """Read a pipe until its other end is closed."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_PIECE)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(out, "rb", buffering=0)
    )
    parts, size = [], 0
    try:
        while piece := await reader.read(_PIECE):
            size += len(piece)
            if size > forked.ANSWER_BYTES_MAX:
                raise forked.ReadFailed
            parts.append(piece)
    finally:
        transport.close()
    return b"".join(parts)


def _too_long() -> Problem:
    detail = f"computing this takes more than {forked.CPU_SECONDS} seconds or too much memory"
    return unavailable("read_too_long", detail, 30)

"""Answers that many readers share: each is made once for everybody who asks the same.

As long as nothing is committed, an answer is good for a second. After a commit an answer is never
older than the call that gets it: whoever asks while one is being made waits for the next. The next
one begins only after a rest, several times as long as the processor needed for the last, so that a
hundred open pages cost a part of one core and not a hundred times one page; one that several asked
for rests a moment even if it was cheap. Whoever gets an answer pays its part of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cede.server.api.limits import METER, Meter
from cede.server.writer import Writer

# Different answers that may be shared at once; more are made for their askers alone.
ANSWERS_MAX = 256
# An answer rests so many times as long as it took, at most so many seconds.
REST_TIMES = 8
REST_MAX = 0.6
# One that several asked for, at least so many seconds.
REST_SHARED = 0.2
# Ages and reasons in an answer are as of when it was begun.
KEPT_SECONDS = 1.0
# Together at most 16 MiB.
KEPT_MAX = 64
KEPT_BYTES_MAX = 1 << 18

Key = tuple[Any, ...]


@dataclass(slots=True)
class _Answer:
    """One that has not been begun, and how many wait for it."""

    done: asyncio.Future[bytes]
    make: Callable[[], Awaitable[bytes]]
    askers: int = 0
    cost: float = 0.0


class _Made(NamedTuple):
    commits: int  # of the writer when it was begun
    at: float
    body: bytes


@dataclass(slots=True)
class Shared:
    """`ask` takes the answer that was last made, makes one, or waits for the one that somebody else
    is about to make.
    """

    writer: Writer
    monotonic: Callable[[], float]
    _made: dict[Key, _Made] = field(default_factory=dict)
    _next: dict[Key, _Answer] = field(default_factory=dict)
    # Of what is being made or rests; gone once it has rested.
    _turns: dict[Key, asyncio.Task[None]] = field(default_factory=dict)

    async def ask(self, key: Key, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return the value of `make`, which depends on the server's state and the key alone."""
        known = self._made.get(key)
        if known is not None and self._is_good(known):
            return known.body
        answer = self._next.get(key)
        if answer is None:
            if len(self._turns) >= ANSWERS_MAX and key not in self._turns:
                return await make()
            answer = _Answer(asyncio.get_running_loop().create_future(), make)
            # Whoever gives up must not make the loop complain about an error that nobody took.
            answer.done.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._next[key] = answer
            if key not in self._turns:
                self._turns[key] = asyncio.create_task(self._serve(key))
        answer.askers += 1
        try:
            return await asyncio.shield(answer.done)
        finally:
            METER.get().add(answer.cost / answer.askers)

    async def _serve(self, key: Key) -> None:
        """Make one answer after the other as long as somebody asks."""
        try:
            while (answer := self._next.pop(key, None)) is not None:
                meter = Meter()
                METER.set(meter)
                commits, at = self.writer.commits, self.monotonic()
                try:
                    body = await meter.measured(_made(answer.make))
                    answer.cost = meter.seconds
                    self._keep(key, _Made(commits, at, body))
                    answer.done.set_result(body)
                except Exception as error:
                    answer.cost = meter.seconds
                    answer.done.set_exception(error)
                least = REST_SHARED if answer.askers > 1 else 0.0
                await asyncio.sleep(min(REST_MAX, max(least, REST_TIMES * meter.seconds)))
        finally:
            del self._turns[key]
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget, key)

    def _is_good(self, made: _Made) -> bool:
        fresh = self.monotonic() - made.at <= KEPT_SECONDS
        return fresh and made.commits == self.writer.commits

    def _forget(self, key: Key) -> None:
        made = self._made.get(key)
        if made is not None and not self._is_good(made):
            del self._made[key]

    def _keep(self, key: Key, made: _Made) -> None:
        if len(self._made) >= KEPT_MAX:
            self._made.clear()
        self._made.pop(key, None)
        if len(made.body) <= KEPT_BYTES_MAX:
            self._made[key] = made


async def _made(make: Callable[[], Awaitable[bytes]]) -> bytes:
    return await make()

"""Answers that are kept for whoever asks the same: for a second, and only until something is
committed. So what a caller was told of is in what it reads next, and a hundred pages that look at
the same list cost as much as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from cede.server.writer import Writer

# Ages and reasons in an answer are as of when it was made.
KEPT_SECONDS = 1.0
# Together at most 16 MiB.
KEPT_MAX = 64
BODY_BYTES_MAX = 1 << 18


@dataclass(frozen=True, slots=True)
class _Answer:
    since: float
    body: asyncio.Task[bytes]


@dataclass(slots=True)
class Kept:
    """`get` makes an answer, or takes the one that was made, or is being made, since the last
    commit.
    """

    writer: Writer
    monotonic: Callable[[], float]
    _commits: int = 0  # of the writer, when the first of these answers was begun
    _answers: dict[tuple[Any, ...], _Answer] = field(default_factory=dict)

    async def get(
        self, key: tuple[Any, ...], make: Callable[[], Coroutine[Any, Any, bytes]]
    ) -> bytes:
        """`key` says everything that the answer depends on, but for what is committed."""
        commits, now = self.writer.commits, self.monotonic()
        if commits != self._commits or len(self._answers) >= KEPT_MAX:
            self._commits = commits
            self._answers.clear()
        found = self._answers.get(key)
        if found is None or now - found.since > KEPT_SECONDS:
            found = self._answers[key] = _Answer(now, asyncio.ensure_future(make()))
            found.body.add_done_callback(lambda done: self._made(key, done))
        # Whoever gives up must not take the answer from the others.
        return await asyncio.shield(found.body)

    def _made(self, key: tuple[Any, ...], done: asyncio.Task[bytes]) -> None:
        failed = done.cancelled() or done.exception() is not None
        if failed or len(done.result()) > BODY_BYTES_MAX:
            known = self._answers.get(key)
            if known is not None and known.body is done:
                del self._answers[key]

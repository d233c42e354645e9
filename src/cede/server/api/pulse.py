"""Wakes streams after a commit: a hint only, the store is the truth and is polled."""

from __future__ import annotations

import asyncio
import contextlib


class Pulse:
    """One beat per commit, from the writer's thread to every stream on the event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self.closed = False

    def beat(self) -> None:
        """Wake all streams. Safe from any thread; free when none waits."""
        loop = self._loop
        if loop is not None and self._waiters:
            with contextlib.suppress(RuntimeError):  # the loop is gone: so are its streams
                loop.call_soon_threadsafe(self._wake)

    def close(self) -> None:
        """End every stream: the server is about to stop. Safe from any thread."""
        self.closed = True
        self.beat()

    async def wait(self, seconds: float) -> bool:
        """Wait for the next beat, at most so many seconds; return whether there was one."""
        self._loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.add(waiter)
        try:
            if not self.closed:
                await asyncio.wait([waiter], timeout=seconds)
            return waiter.done()
        finally:
            self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

"""The future of a step: a `concurrent.futures.Future` that can also be awaited.

Cancelling it stops the work and gives its units back; it counts as cancelled when that is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, TypeVar

R = TypeVar("R")


class StepFuture(Future[R]):
    """The future result of a step. `result()` waits for it, and so does `await`."""

    def __init__(self, step: str, stop: Callable[[], None]) -> None:
        super().__init__()
        self.step = step
        self.is_looked_at = False  # an error that is never looked at fails the pipeline
        self._stop = stop

    def __repr__(self) -> str:
        return f"<StepFuture of {self.step}: {'done' if self.done() else 'not done'}>"

    def running(self) -> bool:
        return not self.done()

    def cancel(self) -> bool:
        """Stop the step: SIGTERM, a few seconds, SIGKILL; a request that waits is cancelled at
        once."""
        if self.done():
            return self.cancelled()
        self.is_looked_at = True
        self._stop()
        return True

    def result(self, timeout: float | None = None) -> R:
        self.is_looked_at = True
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.is_looked_at = True
        return super().exception(timeout)

    def __await__(self) -> Generator[Any, None, R]:
        self.is_looked_at = True
        return asyncio.wrap_future(self).__await__()

    def ended_cancelled(self) -> None:
        """Mark as cancelled; called by the runner once the work is gone."""
        super().cancel()
        self.set_running_or_notify_cancel()

    @property
    def unseen(self) -> BaseException | None:
        """Return the error of a failed step whose result was never asked for."""
        if self.is_looked_at or self.cancelled() or not self.done():
            return None
        return super().exception()

"""Bounds on what one caller may ask of the server (C10): a bucket of cost units that fills at a
steady rate.

A unit is a tenth of a millisecond of processor time. A call pays its permission's cost before
anything is done for it, and afterwards what it really took, into debt if need be. A token has half
of one core, so that several callers that take all they may still leave room for renewals, which
have buckets and a way of their own: a storm of other calls cannot make leases run out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import thread_time
from typing import Any

from cede.server.api.errors import unavailable
from cede.server.api.problem import Problem

UNITS_PER_SECOND = 10_000
RATE = 5_000
BURST = 20_000
# The part of the rate and burst that each kind of bucket has. Renewals of a thousand holders, the
# calls of one node, and the wrong tokens and open calls of one address need far less than all the
# rest of a token's.
PARTS = {"all": 1.0, "operator": 2.0, "renew": 0.4, "beat": 0.4, "address": 0.4, "open": 0.4}
# Buckets that are full again carry no information; beyond this many they are dropped.
BUCKETS_MAX = 10_000
# Calls that are worked on at once, besides those that keep leases; and calls that wait for their
# turn.
CALLS_MAX = 64
CALLS_WAITING_MAX = 2_000


@dataclass(slots=True)
class _Bucket:
    level: float
    filled_at: float


class Limiter:
    """Token buckets by name, KIND:OWNER. `now` is any monotonic number of seconds."""

    def __init__(self, rate: int = RATE, burst: int = BURST) -> None:
        self.rate = rate
        self.burst = burst
        self._buckets: dict[str, _Bucket] = {}

    def spend(self, name: str, cost: int, now: float) -> None:
        """Take `cost` from the bucket, or refuse with 429: the bound, and when to try again."""
        bucket, rate, burst = self._filled(name, now)
        # A call dearer than a full bucket would never get through; it pays by going into debt.
        if bucket.level < min(cost, burst):
            wait = int((min(cost, burst) - bucket.level) / rate) + 1
            whose = "one address" if name.startswith(("address:", "open:")) else "one token"
            raise Problem(
                429,
                "rate_limited",
                f"{whose} may spend {rate:g} cost units a second, {burst:g} at once; "
                f"this call costs {cost}, and calls before it cost what they took",
                headers={"Retry-After": str(wait)},
            )
        bucket.level -= cost

    def charge(self, name: str, cost: float, now: float) -> None:
        """Take the cost beyond a call's price, into debt of at most one full bucket."""
        bucket, _, burst = self._filled(name, now)
        bucket.level = max(bucket.level - cost, -burst)

    def _filled(self, name: str, now: float) -> tuple[_Bucket, float, float]:
        part = PARTS.get(name.partition(":")[0], 1.0)
        rate, burst = self.rate * part, self.burst * part
        bucket = self._buckets.get(name)
        if bucket is None:
            self._make_room(now)
            bucket = self._buckets[name] = _Bucket(burst, now)
        bucket.level = min(burst, bucket.level + (now - bucket.filled_at) * rate)
        bucket.filled_at = now
        return bucket, rate, burst

    def _make_room(self, now: float) -> None:
        if len(self._buckets) < BUCKETS_MAX:
            return
        full_after = 2 * self.burst / self.rate
        for name in [n for n, b in self._buckets.items() if now - b.filled_at >= full_after]:
            del self._buckets[name]
        if len(self._buckets) >= BUCKETS_MAX:
            self._buckets.clear()


class Meter:
    """Processor seconds that one call takes: on the event loop, and what its other threads add.
    A call that keeps a lease is `urgent`.
    """

    def __init__(self, *, urgent: bool = False) -> None:
        self.seconds = 0.0
        self.urgent = urgent

    def add(self, seconds: float) -> None:
        self.seconds += seconds

    def measured(self, work: Coroutine[Any, Any, Any]) -> _Measured:
        """Wrap `work`, to be awaited in its place; every step of it is added."""
        return _Measured(self, work)


METER: ContextVar[Meter] = ContextVar("meter", default=Meter())  # noqa: B039


class _Measured:
    def __init__(self, meter: Meter, work: Coroutine[Any, Any, Any]) -> None:
        self._meter = meter
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        result: Any = None
        error: BaseException | None = None
        while True:
            began = thread_time()
            try:
                if error is None:
                    waited_for = self._work.send(result)
                else:
                    waited_for = self._work.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                self._meter.add(thread_time() - began)
            error = None
            try:
                result = yield waited_for
            except BaseException as thrown:  # the work itself handles it
                error = thrown


class Gate:
    """Lets so many calls be worked on at once, the others in the order in which they came.

    Calls that keep leases do not pass here, so at most so many calls are ahead of a renewal.
    """

    def __init__(self, most: int = CALLS_MAX, waiting_max: int = CALLS_WAITING_MAX) -> None:
        self._free = most
        self._waiting_max = waiting_max
        self._waiting: deque[asyncio.Future[None]] = deque()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Give the place to others while the call waits for an event. It comes back without a
        turn: it has little left to do, and it has waited.
        """
        self.leave()
        try:
            yield
        finally:
            self._free -= 1

    async def enter(self) -> None:
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        if len(self._waiting) >= self._waiting_max:
            raise unavailable("overloaded", f"{len(self._waiting)} calls are waiting", 1)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # the place came and the call is gone
            raise

    def leave(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

"""How much one token may ask of the server (C10): a bucket of cost units that fills at a steady
rate.

Cost, not count: a page of 500 rows is dearer than one row. Renewals and heartbeats have buckets of
their own, so that a storm of other calls cannot make leases run out.
"""

from __future__ import annotations

from dataclasses import dataclass

from cede.server.api.errors import Problem

# Above what one core serves, so that it bounds abuse and no benchmark; a single caller cannot bank
# more than a few seconds of the whole server.
RATE = 5_000
BURST = 20_000
# Buckets that are full again carry no information; beyond this many they are dropped.
BUCKETS_MAX = 10_000


@dataclass(slots=True)
class _Bucket:
    level: float
    filled_at: float


class Limiter:
    """Token buckets by name. `now` is any monotonic number of seconds."""

    def __init__(self, rate: int = RATE, burst: int = BURST) -> None:
        self.rate = rate
        self.burst = burst
        self._buckets: dict[str, _Bucket] = {}

    def spend(self, name: str, cost: int, now: float) -> None:
        """Take `cost` from the bucket, or refuse with 429: the bound, and when to try again."""
        bucket = self._buckets.get(name)
        if bucket is None:
            self._make_room(now)
            bucket = self._buckets[name] = _Bucket(self.burst, now)
        bucket.level = min(self.burst, bucket.level + (now - bucket.filled_at) * self.rate)
        bucket.filled_at = now
        # A call dearer than a full bucket would never get through; it pays by going into debt.
        if bucket.level < min(cost, self.burst):
            wait = int((min(cost, self.burst) - bucket.level) / self.rate) + 1
            raise Problem(
                429,
                "rate_limited",
                f"one token may spend {self.rate} cost units a second, {self.burst} at once; "
                f"this call costs {cost}",
                headers={"Retry-After": str(wait)},
            )
        bucket.level -= cost

    def _make_room(self, now: float) -> None:
        if len(self._buckets) < BUCKETS_MAX:
            return
        full_after = self.burst / self.rate
        for name in [n for n, b in self._buckets.items() if now - b.filled_at >= full_after]:
            del self._buckets[name]
        if len(self._buckets) >= BUCKETS_MAX:
            self._buckets.clear()

"""What Prometheus reads. Labels are pools, policies, rules and routes; never a request's id.

Gauges are read from the store when asked for, and grants and preemptions are counted from the
journal then: neither can drift from what is true, and the writer pays nothing for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cede.engine.changes import Event
from cede.model import bounds
from cede.model.reason import Code
from cede.store import PoolView, Store

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Seconds: what a pass, a commit or an answer takes.
_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
# Seconds: what people wait.
_WAITS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400, 86400)
# One scrape counts at most so many pages of the journal; the next goes on from there.
_PAGES_MAX = 400
# Submissions remembered until their grant, to measure how long it took.
_SUBMITTED_MAX = 100_000
_TAKINGS = frozenset({Code.RECLAIM, Code.PRIORITY, Code.OWN_POLICY})


class Metrics:
    """All series of one server."""

    def __init__(self, store: Store, index: int) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Gauges(store))
        own = self.registry
        self.grants = Counter("cede_grants", "Allocations granted.", ["pool"], registry=own)
        self.preemptions = Counter(
            "cede_preemptions",
            "Holders told to stop for somebody else, by the rule that allowed it.",
            ["pool", "policy", "reason"],
            registry=own,
        )
        self.grant_latency = Histogram(
            "cede_grant_latency_seconds",
            "From the submission of a request to its first grant.",
            ["pool"],
            buckets=_WAITS,
            registry=own,
        )
        self.passes = Histogram("cede_pass_seconds", "Deciding.", buckets=_FAST, registry=own)
        self.commits = Histogram("cede_commit_seconds", "Writing.", buckets=_FAST, registry=own)
        self.http = Counter(
            "cede_http_requests", "Answers.", ["method", "route", "status"], registry=own
        )
        self.http_seconds = Histogram(
            "cede_http_seconds", "Time to answer.", ["route"], buckets=_FAST, registry=own
        )
        self._store = store
        self._counted = index
        self._submitted: dict[str, int] = {}
        self._lock = Lock()

    def observe_answer(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer; called at the edge."""
        self.http.labels(method, route, str(status)).inc()
        self.http_seconds.labels(route).observe(seconds)

    def observe_turn(self, pass_seconds: float, commit_seconds: float) -> None:
        """Time one turn of the writer; called on its thread."""
        self.passes.observe(pass_seconds)
        self.commits.observe(commit_seconds)

    def render(self) -> bytes:
        """The text that Prometheus scrapes; slow with many series: not for the event loop."""
        with self._lock:
            self._count_journal()
            return generate_latest(self.registry)

    def _count_journal(self) -> None:
        names = self._store.pool_names()
        for _ in range(_PAGES_MAX):
            events = self._store.events_after(self._counted, limit=bounds.PAGE_MAX)
            for event in events:
                self._count(event, names)
            if events:
                self._counted = events[-1].index
            if len(events) < bounds.PAGE_MAX:
                return

    def _count(self, event: Event, names: Mapping[str, str]) -> None:
        pool = names.get(event.pool_id or "", "")
        if event.kind == "submitted" and event.request_id:
            if len(self._submitted) >= _SUBMITTED_MAX:
                self._submitted.clear()
            self._submitted[event.request_id] = event.at
        elif event.kind == "granted" and event.request_id:
            self.grants.labels(pool).inc()
            since = self._submitted.pop(event.request_id, None)
            if since is not None:
                self.grant_latency.labels(pool).observe((event.at - since) / bounds.SECOND)
        elif event.kind == "preempting":
            reason = event.data.get("reason", {})
            if reason.get("code") in _TAKINGS:
                self.preemptions.labels(pool, reason.get("policy", ""), reason["code"]).inc()


class _Gauges(Collector):
    """Read when scraped."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def describe(self) -> Iterator[Metric]:
        """Nothing: registering must not read the store."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        capacity = _gauge("cede_pool_capacity", "Units a pool has.", "pool", "key")
        occupied = _gauge("cede_pool_occupied", "Units held in a pool.", "pool", "key")
        requests = _gauge("cede_requests", "Requests in a pool by view.", "status", "pool")
        for view in self._pools():
            name = view.pool.name
            for key, amount in view.pool.capacity.items():
                capacity.add_metric([name, key], amount)
                occupied.add_metric([name, key], view.occupied.get(key, 0))
            requests.add_metric(["queued", name], view.queued)
            requests.add_metric(["active", name], view.active)
        yield from (capacity, occupied, requests)

    def _pools(self) -> Iterable[PoolView]:
        cursor = None
        while True:
            page = self._store.list_pools(cursor=cursor, limit=bounds.PAGE_MAX)
            yield from page.items
            cursor = page.next
            if cursor is None:
                return


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=list(labels))

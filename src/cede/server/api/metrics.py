"""Metrics for Prometheus. Labels are pools, policies, tenants, rules and routes; never an id.

Gauges are read from the state and the store at each scrape, and grants and preemptions are counted
from the journal then: neither can drift from the truth, and the writer pays next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cede.engine.explain.contents import Contents
from cede.engine.state.changes import Event
from cede.model import bounds
from cede.model.lifecycle import TERMINAL
from cede.model.reason import TAKINGS, Code
from cede.server.api.share_metrics import ShareGauges
from cede.store import Store

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Seconds of a pass, a commit or an answer.
_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
# Seconds that people wait.
_WAITS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400, 86400)
# One scrape counts at most so many pages of the journal; the next goes on from there.
_PAGES_MAX = 400
# Submissions remembered until their grant, to measure how long it took.
_SUBMITTED_MAX = 100_000
# As document 004 calls it.
_RULES = {Code.SENSITIVE_CLAIM: "sensitive"}
# Events after which a request is no victim any more.
_AFTER_STOP_PROGRESS = frozenset(
    {"requeued", "suspended", "goes_on", *(str(status) for status in TERMINAL)}
)
# Seconds from a hint to a checkpoint.
_CHECKPOINTS = (0.5, 1, 5, 15, 30, 60, 120, 300, 600, 900, 1200)


class Metrics:
    """All series of one server."""

    def __init__(self, store: Store, index: int, bridges: Collector) -> None:
        self.registry = CollectorRegistry()
        self._gauges = _Gauges(store)
        self.registry.register(self._gauges)
        self.registry.register(bridges)
        self._shares = ShareGauges()
        self.registry.register(self._shares)
        own = self.registry
        self.grants = Counter("cede_grants", "Allocations granted.", ["pool"], registry=own)
        self.preemptions = Counter(
            "cede_preemptions",
            "Holders told to stop for others, by the rule that allowed it.",
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
        self._make_series_of_nodes()
        self._make_series_of_the_broker()
        self._store = store
        # The series of each answer: looking them up by their labels takes longer than counting.
        self._answers: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._counted = index
        self._submitted: dict[str, int] = {}
        self._victims: set[str] = set()
        self._lock = Lock()

    def _make_series_of_nodes(self) -> None:
        own = self.registry
        self.requeued = Counter(
            "cede_preemption_victim_requeue",
            "Victims that wait again, with their work saved or without.",
            ["pool"],
            registry=own,
        )
        self.failed_checkpoints = Counter(
            "cede_preemption_failed_checkpoint",
            "Victims that had not saved their work when their time was over.",
            ["pool"],
            registry=own,
        )
        self.checkpoints = Histogram(
            "cede_preemption_checkpoint_duration_seconds",
            "From the hint to the committed checkpoint.",
            ["pool"],
            buckets=_CHECKPOINTS,
            registry=own,
        )
        self.heartbeats = Counter("cede_heartbeats", "Heartbeats of agents.", registry=own)
        self.heartbeat_seconds = Histogram(
            "cede_heartbeat_seconds",
            "Time to answer a heartbeat, without the waiting that it asks for.",
            buckets=_FAST,
            registry=own,
        )
        self.stale_reports = Counter(
            "cede_stale_reports",
            "Reports of agents about attempts that are over or not theirs.",
            registry=own,
        )

    def _make_series_of_the_broker(self) -> None:
        own = self.registry
        self.evaluations = Counter(
            "cede_checkpoint_evaluations",
            "Looks whether running work should save itself, by what came of them.",
            ["pool", "decision"],
            registry=own,
        )
        self.asks = Counter(
            "cede_checkpoint_asks",
            "Running work asked to save itself and go on.",
            ["pool"],
            registry=own,
        )
        self.unanswered = Counter(
            "cede_checkpoint_unanswered",
            "Asks that were not answered in time.",
            ["pool"],
            registry=own,
        )
        self.asked_checkpoints = Histogram(
            "cede_checkpoint_duration_seconds",
            "From an ask to save and go on to the committed checkpoint.",
            ["pool"],
            buckets=_CHECKPOINTS,
            registry=own,
        )

    def observe_answer(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer; called at the edge."""
        known = self._answers.get((method, route, status))
        if known is None:
            count = self.http.labels(method, route, str(status))
            known = self._answers[method, route, status] = (count, self.http_seconds.labels(route))
        known[0].inc()
        known[1].observe(seconds)

    def observe_heartbeat(self, seconds: float) -> None:
        self.heartbeats.inc()
        self.heartbeat_seconds.observe(seconds)

    def observe_turn(self, pass_seconds: float, commit_seconds: float) -> None:
        """Time one turn of the writer; called on its thread."""
        self.passes.observe(pass_seconds)
        self.commits.observe(commit_seconds)

    def count_judged(self, judged: Mapping[tuple[str, str], int]) -> None:
        """Count a pass's decisions on whether running work should save itself; called on the
        writer's thread."""
        for (pool, decision), times in judged.items():
            self.evaluations.labels(pool, decision).inc(times)

    def render(self, pools: Sequence[Contents] = (), shares: bytes = b"[]") -> bytes:
        """Return the text that Prometheus scrapes, with the given pools and fair shares; slow
        with many series: not for the event loop.
        """
        with self._lock:
            self._gauges.pools = pools
            self._shares.take(shares)
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
        elif event.kind == "stale_report":
            self.stale_reports.inc()
        elif event.request_id is not None:
            self._count_stop_progress(event, pool, event.request_id)

    def _count_stop_progress(self, event: Event, pool: str, request_id: str) -> None:
        """Count the events of a stop, from its order to its end."""
        if event.kind == "preempting":
            reason = event.data.get("reason", {})
            if reason.get("code") in TAKINGS:
                rule = _RULES.get(reason["code"], reason["code"])
                self.preemptions.labels(pool, reason.get("policy", ""), rule).inc()
                if len(self._victims) >= _SUBMITTED_MAX:
                    self._victims.clear()
                self._victims.add(request_id)
        elif event.kind in ("requeued", "suspended"):
            if request_id in self._victims:
                self.requeued.labels(pool).inc()
        elif event.kind == "checkpoint_saved" and "took" in event.data:
            took = event.data["took"] / bounds.SECOND
            asked = "asked" in event.data
            (self.asked_checkpoints if asked else self.checkpoints).labels(pool).observe(took)
        elif event.kind == "checkpoint_asked":
            self.asks.labels(pool).inc()
        elif event.kind == "checkpoint_unanswered":
            self.unanswered.labels(pool).inc()
        elif event.kind == "checkpoint_failed":
            self.failed_checkpoints.labels(pool).inc()
        if event.kind in _AFTER_STOP_PROGRESS:
            self._victims.discard(request_id)


class _Gauges(Collector):
    """Collected at each scrape."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.pools: Sequence[Contents] = ()

    def describe(self) -> Iterator[Metric]:
        """Return nothing: registering must not read the store."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        capacity = _gauge("cede_pool_capacity", "Units a pool has.", "pool", "key")
        occupied = _gauge("cede_pool_occupied", "Units held in a pool.", "pool", "key")
        requests = _gauge("cede_requests", "Requests in a pool by view.", "status", "pool")
        for view in self.pools:
            name = view.pool.name
            for key, amount in view.pool.capacity.items():
                capacity.add_metric([name, key], amount)
                occupied.add_metric([name, key], view.occupied.get(key, 0))
            requests.add_metric(["queued", name], view.queued)
            requests.add_metric(["active", name], view.active)
        yield from (capacity, occupied, requests)
        yield self._nodes()
        yield from self._tenants()
        leases = _gauge("cede_leases", "Leases that run now, of nodes and of clients.", "holder")
        for holder, count in self._store.lease_counts().items():
            leases.add_metric([holder], count)
        yield leases

    def _nodes(self) -> Metric:
        nodes = _gauge("cede_nodes", "Nodes by pool and state.", "pool", "state")
        names = self._store.pool_names()
        for (pool_id, state), count in self._store.node_counts().items():
            nodes.add_metric([names.get(pool_id or "", ""), state], count)
        return nodes

    def _tenants(self) -> Iterator[Metric]:
        nodes = _gauge("cede_tenant_nodes", "Nodes that a tenant has in use.", "tenant")
        requests = _gauge("cede_tenant_requests", "Its requests that have not ended.", "tenant")
        for name, counts in self._store.tenant_counts().items():
            nodes.add_metric([name], counts[0])
            requests.add_metric([name], counts[1])
        yield from (nodes, requests)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=list(labels))

"""The instants at which entities change by time: leases, stops, delays, silence, and checks
whether work should save itself.
"""

from __future__ import annotations

from cede.engine.state import saving as broker
from cede.model import bounds
from cede.model.allocation import Allocation, Phase
from cede.model.lifecycle import AllocationState
from cede.model.node import SILENT_AFTER, Node, NodeState
from cede.model.request import OnSilence, Request
from cede.model.settings import Settings
from cede.model.stopping import Checkpoint


def lease_over(lease_until: int, lease: int | None) -> int:
    """The instant at which the server considers a lease over: later than its holder does, for clock
    drift and one pass.
    """
    return lease_until + (lease or 0) // bounds.LEASE_DRIFT_DIVISOR + bounds.LEASE_MARGIN


def lease_end(lease_until: int, lease: int | None, since: int) -> int:
    """The instant at which a client's lease is over. A server that started at `since` was away
    before, and gives every client the whole lease again.
    """
    return lease_over(max(lease_until, since + (lease or 0)), lease)


def deadline_of(
    allocation: Allocation, request: Request | None, settings: Settings, since: int
) -> int | None:
    """The instant at which a stop is over. A client that may not have been told of it keeps its
    lease first.
    """
    deadline = allocation.deadline
    if deadline is None or not since or request is None or request.lease is None:
        return deadline
    heard = lease_end(0, request.lease, since)
    return max(deadline, heard + settings.grace + bounds.STOP_PROGRESS_MARGIN)


def gone_at(node: Node, heard: int) -> int:
    """The instant at which a silent node is down: not before all work that must stop with its lease
    has stopped (S14).
    """
    return lease_over(max(heard + node.lease, node.promised), node.lease) + bounds.KILL_GRACE


def keeps(node: Node, request: Request) -> bool:
    """Whether work on a node outlives the silence of its server. By default it does beside the only
    server, as no other can grant its units. In a bridge's cluster it always does: only that cluster
    knows when the work ended.
    """
    if node.bridge:
        return True
    return (
        node.beside_server if request.on_silence is None else request.on_silence is OnSilence.KEEP
    )


def may_lose(node: Node, request: Request, allocation: Allocation) -> bool:
    """Whether a node that is down has yet to lose a part of this allocation."""
    if request.work is None:
        return False
    if keeps(node, request):
        return allocation.state is not AllocationState.LOST
    members = allocation.members
    return any(each.node_id == node.id and each.phase is not Phase.ENDED for each in members)


def node_due(node: Node, heard: int, loses: bool) -> int | None:
    """The instant at which a silent node becomes degraded or down, or loses its last holdings."""
    if node.state is NodeState.DOWN:
        return gone_at(node, heard) if loses else None
    if node.state is NodeState.READY:
        return heard + SILENT_AFTER * node.heartbeat
    return gone_at(node, heard)


def request_due(request: Request, *, delayed: bool, since: int) -> int | None:
    """The instant at which a request changes by time: its delay, pin, withholding or lease ends."""
    instants = [] if request.withhold is None else [request.withhold.until]
    if request.waiting:
        if request.pin is not None and request.pin.until is not None:
            instants.append(request.pin.until)
        if delayed:
            instants.append(request.not_before)
        if request.lease_until is not None:
            instants.append(lease_end(request.lease_until, request.lease, since))
    return min(instants) if instants else None


def allocation_due(
    allocation: Allocation,
    request: Request | None,
    settings: Settings,
    passed: int,
    since: int = 0,
) -> int | None:
    """The instant at which an allocation changes by time: its lease, its stop or its first seconds
    end; or of the next check whether it should save itself.
    """
    instants = []
    if allocation.state is not AllocationState.LOST:
        if allocation.leaving:
            deadline = deadline_of(allocation, request, settings, since)
            instants += [] if deadline is None else [deadline]
        if (
            allocation.state is AllocationState.CHECKPOINTING
            and allocation.stop_progress is not None
        ):
            instants.append(allocation.stop_progress.until)
        stopping = allocation.state is AllocationState.STOPPING
        if allocation.lease_until is not None and not stopping:
            lease = None if request is None else request.lease
            instants.append(lease_end(allocation.lease_until, lease, since))
    if request is not None and (settings.broker or allocation.asked is not None):
        look = look_due(allocation, request, settings, passed)
        instants += [] if look is None else [look]
    for protected in (settings.min_run, settings.reclaim_min_run):
        if protected and allocation.allocated_at + protected > passed:
            instants.append(allocation.allocated_at + protected)
    return min(instants) if instants else None


def changes_itself(allocation: Allocation, settings: Settings, before: int, now: int) -> bool:
    """Whether the due timer of an allocation concerns its pool; a check whether it should save
    itself does not. A lease may count as over slightly too soon.
    """
    if not settings.broker and allocation.asked is None:
        return True
    due = allocation_due(allocation, None, settings, before)
    return due is not None and due <= now


def look_due(
    allocation: Allocation, request: Request, settings: Settings, passed: int
) -> int | None:
    """The instant of the next check whether running work should save itself, or of the end of an
    open ask.
    """
    if (ask := allocation.open_ask) is not None:
        return ask.until if allocation.state is AllocationState.RUNNING else None
    first = first_look(allocation, request, settings)
    if first is None or first > passed:
        return first
    least, most = intervals(request, settings)
    period = max(bounds.SECOND, min(bounds.BROKER_PERIOD, least))
    following = first + ((passed - first) // period + 1) * period
    overdue = unsaved_since(allocation, request) + most
    return min(following, overdue) if overdue > passed else following


def first_look(allocation: Allocation, request: Request, settings: Settings) -> int | None:
    """The instant from which work may be asked to save itself; None if it never is. A whole second,
    so that few passes check much work.
    """
    running = allocation.state is AllocationState.RUNNING and allocation.started_at is not None
    if not settings.broker or not running or request.stop_policy.checkpoint is not Checkpoint.AUTO:
        return None
    since = unsaved_since(allocation, request)
    if allocation.asked is not None:
        since = max(since, allocation.asked.until)
    return -(-(since + intervals(request, settings)[0]) // bounds.SECOND) * bounds.SECOND


def unsaved_since(allocation: Allocation, request: Request) -> int:
    started = allocation.started_at or 0
    return started if request.saved is None else max(started, request.saved.at)


def intervals(request: Request, settings: Settings) -> tuple[int, int]:
    """The least and the greatest time between two checkpoints that are asked for."""
    if request.terms.sensitive:
        return broker.USUAL.sensitive_interval_min, broker.USUAL.sensitive_interval_max
    return settings.checkpoint_interval_min, settings.checkpoint_interval_max

"""When things change by themselves: leases, partings, delays, silence."""

from __future__ import annotations

from cede.model import bounds
from cede.model.allocation import Allocation, Phase
from cede.model.lifecycle import AllocationState
from cede.model.node import DOWN_AFTER, SILENT_AFTER, Node, NodeState
from cede.model.request import OnSilence, Request
from cede.model.settings import Settings


def lease_over(lease_until: int, lease: int | None) -> int:
    """When the server believes that a lease is over: later than its holder does (clock drift, one
    pass).
    """
    return lease_until + (lease or 0) // bounds.LEASE_DRIFT_DIVISOR + bounds.LEASE_MARGIN


def gone_at(node: Node, heard: int) -> int:
    """When a silent node is down: not before whatever must stop with its lease has (S14)."""
    kept = lease_over(heard + node.lease, node.lease) + bounds.KILL_GRACE
    return max(heard + DOWN_AFTER * node.heartbeat, kept)


def may_lose(node: Node, request: Request, allocation: Allocation) -> bool:
    """Whether a node that is down has yet to lose something of this."""
    if request.work is None:
        return False
    if request.on_silence is OnSilence.KEEP:
        return allocation.state is not AllocationState.LOST
    members = allocation.members
    return any(each.node_id == node.id and each.phase is not Phase.ENDED for each in members)


def node_due(node: Node, heard: int, loses: bool) -> int | None:
    """When a node that stays silent becomes degraded, or down, or loses what it still holds."""
    if node.state is NodeState.DOWN:
        return gone_at(node, heard) if loses else None
    if node.state is NodeState.READY:
        return heard + SILENT_AFTER * node.heartbeat
    return gone_at(node, heard)


def request_due(request: Request, *, delayed: bool) -> int | None:
    """When a request changes by itself: its delay, withholding or waiting lease ends."""
    instants = [] if request.withhold is None else [request.withhold.until]
    if request.waiting:
        if delayed:
            instants.append(request.not_before)
        if request.lease_until is not None:
            instants.append(lease_over(request.lease_until, request.lease))
    return min(instants, default=None)


def allocation_due(
    allocation: Allocation, lease: int | None, settings: Settings, passed: int
) -> int | None:
    """When an allocation changes by itself: its lease, its parting or its first seconds end."""
    instants = []
    if allocation.state is not AllocationState.LOST:
        if allocation.leaving and allocation.deadline is not None:
            instants.append(allocation.deadline)
        if allocation.state is AllocationState.CHECKPOINTING and allocation.parting is not None:
            instants.append(allocation.parting.until)
        stopping = allocation.state is AllocationState.STOPPING
        if allocation.lease_until is not None and not stopping:
            instants.append(lease_over(allocation.lease_until, lease))
    for protected in (settings.min_run, settings.reclaim_min_run):
        if protected and allocation.allocated_at + protected > passed:
            instants.append(allocation.allocated_at + protected)
    return min(instants, default=None)

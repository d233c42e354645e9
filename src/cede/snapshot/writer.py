"""A whole state as plain data: the output of `cede snapshot`, the input of `cede plan`.

It has everything that decisions depend on, so that planning a snapshot gives the server's next
decisions. It does not have the commands of work: decisions do not need them, and they are their
owners' (C4). Times are seconds. `resources` is taken literally and per task; only `settings` adds
the step slot.
"""

from __future__ import annotations

from typing import Any

from cede.engine.admin.presets import PRESETS
from cede.engine.state.state import State
from cede.model import bounds
from cede.model.allocation import Allocation, Member
from cede.model.durations import seconds
from cede.model.fields import said
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.node import Node, Out
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.reason import Code
from cede.model.request import Preemptions, Request
from cede.model.settings import shown_own
from cede.model.shape import Footprint
from cede.model.stopping import Ask, Saved, StopProgress
from cede.model.subject import Subject
from cede.snapshot.clocks import show_clocks
from cede.snapshot.tenants import show_tenants

# The shown name of an allocation state that has another name inside.
STOPPING_SHOWN = "preempting"


def dump(state: State, now: int) -> dict[str, Any]:
    """The state as data, in an order that does not depend on its history."""
    pools = sorted(state.pools.values(), key=lambda each: each.name)
    policies = sorted(state.policies.values(), key=lambda each: _policy_order(state, each))
    nodes = sorted(state.nodes.values(), key=lambda each: each.name)
    live = sorted((a for a in state.allocations.values() if a.live), key=lambda each: each.index)
    waiting = sorted(state.waiting(), key=lambda each: each.age)
    return _full(
        now=seconds(now),
        pools=[_pool(state, each) for each in pools],
        policies=[_policy(state, each) for each in policies],
        nodes=[_node(state, each) for each in nodes] or None,
        tenants=show_tenants(state) or None,
        running=[_running(state, each) for each in live],
        requests=[_waiting(state, each) for each in waiting],
    )


def _policy_order(state: State, policy: Policy) -> tuple[str, int, Subject]:
    """The sort key of policies: by pool, parents first."""
    ledger = state.ledgers[policy.pool_id]
    return (ledger.pool.name, len(ledger.chains[policy.id]), policy.subject)


def _policy(state: State, policy: Policy) -> dict[str, Any]:
    return _full(
        pool=state.pools[policy.pool_id].name,
        name=policy.name,
        component=policy.subject.name,
        component_type=policy.subject.type,
        parent=None if policy.parent_id is None else str(state.policies[policy.parent_id].subject),
        **{
            "priority": policy.priority,
            "reserved": {},
            "limit": {},
            **said(policy),
        },
    )


def _full(**fields: Any) -> dict[str, Any]:
    """The fields that are set; None is left out."""
    return {name: value for name, value in fields.items() if value is not None}


def _pool(state: State, pool: Pool) -> dict[str, Any]:
    return _full(
        name=pool.name,
        preset=pool.preset,
        capacity=dict(pool.capacity) if pool.nodes is None else None,
        nodes=None if pool.nodes is None else dict(pool.nodes),
        settings=pool.settings.differences(PRESETS[pool.preset]) or None,
        shrunk=_over(state, pool.id) or None,
        quarantine=seconds(pool.quarantine),
        **show_clocks(state, pool.id),
    )


def _over(state: State, pool_id: str) -> bool:
    ledger = state.ledgers[pool_id]
    return any(held > ledger.pool.capacity.get(key, 0) for key, held in ledger.live.items())


def _node(state: State, node: Node) -> dict[str, Any]:
    return _full(
        name=node.name,
        id=node.id if node.id != node.name else None,
        amounts=dict(node.amounts),
        devices={key: list(names) for key, names in node.devices.items()} or None,
        labels=dict(node.labels) or None,
        group=node.group or None,
        fingerprint=node.fingerprint or None,
        state=str(node.state),
        out=str(node.out) if node.out is not Out.NO else None,
        reason=node.reason or None,
        heartbeat=seconds(node.heartbeat),
        heard_at=seconds(state.beats.get(node.id)),
        taken_at=seconds(state.staged.get(node.id)),
        failures=node.failures or None,
        shrunk=bool(node.edited) or None,
        claimed_by=node.claimed_by or None,
        lease=seconds(node.lease) if node.lease != bounds.NODE_LEASE_DEFAULT else None,
        promised=seconds(node.promised or None),
        folder=node.folder or None,
        beside_server=node.beside_server or None,
        quarantined=node.quarantined or None,
        bridge=node.bridge or None,
        others=dict(node.others) or None,
        others_why=node.others_why or None,
    )


def _running(state: State, allocation: Allocation) -> dict[str, Any]:
    request = state.requests[allocation.request_id]
    stopping = allocation.state is AllocationState.STOPPING
    return _full(
        pool=state.pools[allocation.pool_id].name,
        nowhere_else=request.pool_id is not None or None,
        **_common(request),
        allocated_at=seconds(allocation.allocated_at),
        started_at=seconds(allocation.started_at),
        index=allocation.index,
        state=STOPPING_SHOWN if stopping else str(allocation.state),
        **{"for": _named(state, allocation.taken_for)},
        cancelled=request.cancelled or None,
        reason=_rule(request, allocation),
        deadline=seconds(allocation.deadline),
        told=allocation.told or None,
        lease_until=seconds(allocation.lease_until),
        members=[_member(state, each) for each in allocation.members] or None,
        parting=allocation.stop_progress and _stop_progress(allocation.stop_progress),
        asked=allocation.asked and _asked(allocation.asked),
        announced=allocation.announced or None,
        looks=allocation.resume is None or None,
        resume_point=allocation.resume or None,
    )


def _rule(request: Request, allocation: Allocation) -> dict[str, Any] | None:
    """The rule under which it is stopped. A victim that is cancelled meanwhile remains a victim,
    because its beneficiary may have its place in the share.
    """
    reason = allocation.reason
    if request.status is not RequestStatus.PREEMPTING or reason is None:
        return None
    return None if reason.code is Code.CANCELLED else reason.to_dict()


def _named(state: State, request_id: str | None) -> str | None:
    """A request's id; None if it has ended, because then it is not in the snapshot."""
    request = None if request_id is None else state.requests.get(request_id)
    return None if request is None or request.ended else request.id


def _member(state: State, member: Member) -> dict[str, Any]:
    return _full(
        node=state.nodes[member.node_id].name,
        devices={key: list(names) for key, names in member.devices.items()},
        phase=str(member.phase),
        saved=member.saved or None,
        exit_code=member.exit_code,
        cause=member.cause or None,
        ids=list(member.ids) or None,
        looked=member.looked or None,
        unread=member.unread or None,
    )


def _stop_progress(stop_progress: StopProgress) -> dict[str, Any]:
    return _full(
        hinted_at=seconds(stop_progress.hinted_at),
        until=seconds(stop_progress.until),
        answered=stop_progress.answered or None,
        extended=stop_progress.extended or None,
        deferred=seconds(stop_progress.deferred or None),
        saved=stop_progress.saved or None,
        failed=stop_progress.failed or None,
    )


def _asked(ask: Ask) -> dict[str, Any]:
    return _full(
        at=seconds(ask.at), until=seconds(ask.until), over=ask.over or None, took=seconds(ask.took)
    )


_FOLLOWING = ("after", "after_any")


def _waiting(state: State, request: Request) -> dict[str, Any]:
    earmark, withhold = request.earmark, request.withhold
    awaited = state.gates.awaited(request)
    return _full(
        **_common(request),
        # Ended requests are not in the snapshot, and no request waits for them any more.
        **{
            name: [each for each in getattr(request, name) if each in awaited] or None
            for name in _FOLLOWING
        },
        pool=None if request.pool_id is None else state.pools[request.pool_id].name,
        earmark=earmark
        and _full(
            pool=state.pools[earmark.pool_id].name,
            amounts=dict(request.amounts),
            index=earmark.index,
            nodes=_footprint(state, earmark.footprint),
        ),
        bypassed=request.bypassed or None,
        withhold=withhold
        and _full(
            pool=state.pools[withhold.pool_id].name,
            until=seconds(withhold.until),
            nodes=_footprint(state, withhold.footprint),
            start=seconds(withhold.start),
        ),
        not_before=seconds(request.not_before or None),
        lease_until=seconds(request.lease_until),
        suspended=request.status is RequestStatus.SUSPENDED or None,
    )


def _footprint(state: State, footprint: Footprint) -> list[list[Any]] | None:
    """A promised footprint; nodes that were deleted meanwhile are left out."""
    known = [
        (state.nodes[node_id], tasks) for node_id, tasks in footprint if node_id in state.nodes
    ]
    return [[node.name, tasks] for node, tasks in known] or None


def _common(request: Request) -> dict[str, Any]:
    return _full(
        id=request.id,
        component=request.subject.name,
        component_type=request.subject.type,
        resources=dict(request.amounts if request.shape is None else request.shape.amounts),
        **_tasks(request),
        preemptible=request.preemptible,
        submitted_at=seconds(request.submitted_at),
        submitted_index=request.index,
        attempt=request.attempt,
        preempted_count=request.preempted_count or None,
        lost_count=request.lost_count or None,
        left_count=request.left_count or None,
        **_retries(request),
        lease=seconds(request.lease),
        work=request.work is not None or None,
        saved=request.saved and _saved(request, request.saved),
        pin=request.pin
        and _full(folders=list(request.pin.folders), until=seconds(request.pin.until)),
        part_of=request.part_of,
        array_task=request.array_task,
        owner=(request.terms.sensitive and request.owner) or None,  # else it decides nothing
        settings=shown_own(request.terms.settings) or None,
        **{name: value for name, value in said(request).items() if name not in _FOLLOWING},
        **said(request.stop_policy),
        **said(request.terms),
    )


def _saved(request: Request, saved: Saved) -> dict[str, Any]:
    """Its place in the order counts while it runs; a waiter will start behind all holders."""
    place = None if request.waiting else saved.index
    return _full(
        id=saved.id,
        at=seconds(saved.at),
        size=saved.size or None,
        index=place or None,
        attempt=saved.attempt or None,
        before=saved.before or None,
        folders=list(saved.folders) or None,
    )


def _tasks(request: Request) -> dict[str, Any]:
    """The number of tasks and how they must sit."""
    shape = request.shape
    if shape is None:
        return {}
    return {**({} if shape.tasks == 1 else {"tasks": shape.tasks}), **said(shape)}


def _retries(request: Request) -> dict[str, Any]:
    """How often it may still come back; without a number preemption uses no retries up."""
    retry, left = request.retry, request.retry.max_retries - request.retries_used
    counted = retry.preemptions is Preemptions.COUNT
    if not counted and not left:
        return {}
    return _full(
        retries=left,
        preemptions=None if counted else str(retry.preemptions),
        retry_delay=seconds(retry.delay_before(request.retries_used + 1) or None),
        retry_backoff=retry.backoff if retry.backoff != 1 and retry.delay else None,
    )

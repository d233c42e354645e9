"""A whole state as plain data, and back: what `cede snapshot` prints and `cede plan` reads.

Everything that deciding looks at is in it, so that planning a snapshot gives what the server would
do next. Times are seconds. `resources` is taken literally; only `settings` adds the step slot.
"""

from __future__ import annotations

from typing import Any

from cede.engine.presets import PRESETS
from cede.engine.state import State
from cede.model.allocation import Allocation
from cede.model.lifecycle import AllocationState
from cede.model.request import OnSilence, Preemptions, Request
from cede.model.settings import seconds


def dump(state: State, now: int) -> dict[str, Any]:
    """The state as data, in an order that does not depend on how it came about."""
    pools = sorted(state.pools.values(), key=lambda each: each.name)
    policies = sorted(
        state.policies.values(), key=lambda each: (state.pools[each.pool_id].name, each.subject)
    )
    live = sorted((a for a in state.allocations.values() if a.live), key=lambda each: each.index)
    waiting = sorted(state.waiting(), key=lambda each: each.age)
    return {
        "now": seconds(now),
        "pools": [
            _full(
                name=pool.name,
                preset=pool.preset,
                capacity=dict(pool.capacity),
                settings=pool.settings.differences(PRESETS[pool.preset]) or None,
                shrunk=_over(state, pool.id) or None,
            )
            for pool in pools
        ],
        "policies": [
            {
                "pool": state.pools[policy.pool_id].name,
                "name": policy.name,
                "component": policy.subject.name,
                "component_type": policy.subject.type,
                "priority": policy.priority,
                "reserved": dict(policy.reserved),
                "limit": dict(policy.limit),
            }
            for policy in policies
        ],
        "running": [_running(state, each) for each in live],
        "requests": [_waiting(state, each) for each in waiting],
    }


def _full(**fields: Any) -> dict[str, Any]:
    """Only what is set: defaults are left out."""
    return {name: value for name, value in fields.items() if value is not None}


def _over(state: State, pool_id: str) -> bool:
    books = state.books[pool_id]
    return any(held > books.pool.capacity.get(key, 0) for key, held in books.live.items())


def _running(state: State, allocation: Allocation) -> dict[str, Any]:
    request = state.requests[allocation.request_id]
    shown = {AllocationState.STOPPING: "preempting", AllocationState.CHECKPOINTING: "preempting"}
    return _full(
        pool=state.pools[allocation.pool_id].name,
        **_common(request),
        allocated_at=seconds(allocation.allocated_at),
        started_at=seconds(allocation.started_at),
        index=allocation.index,
        state=shown.get(allocation.state, "lost" if allocation.state == "lost" else "running"),
        **{"for": _named(state, allocation.taken_for)},
        cancelled=request.cancelled or None,
        deadline=seconds(allocation.deadline),
        told=allocation.told or None,
        lease_until=seconds(allocation.lease_until),
    )


def _named(state: State, request_id: str | None) -> str | None:
    """A request by its id, unless it has ended: then it is not in the snapshot."""
    request = None if request_id is None else state.requests.get(request_id)
    return None if request is None or request.ended else request.id


def _waiting(state: State, request: Request) -> dict[str, Any]:
    earmark, withhold = request.earmark, request.withhold
    return _full(
        **_common(request),
        pool=None if request.pool_id is None else state.pools[request.pool_id].name,
        earmark=earmark
        and {
            "pool": state.pools[earmark.pool_id].name,
            "amounts": dict(request.amounts),
            "index": earmark.index,
        },
        bypassed=request.bypassed or None,
        withhold=withhold
        and {"pool": state.pools[withhold.pool_id].name, "until": seconds(withhold.until)},
        not_before=seconds(request.not_before or None),
        lease_until=seconds(request.lease_until),
    )


def _common(request: Request) -> dict[str, Any]:
    retry = request.retry
    counted = retry.preemptions is Preemptions.COUNT
    return _full(
        id=request.id,
        component=request.subject.name,
        component_type=request.subject.type,
        resources=dict(request.amounts),
        preemptible=request.preemptible,
        submitted_at=seconds(request.submitted_at),
        submitted_index=request.index,
        attempt=request.attempt,
        preempted_count=request.preempted_count or None,
        retries=retry.max_retries - request.retries_used if counted else None,
        retry_delay=seconds(retry.delay_before(request.retries_used + 1) or None)
        if counted
        else None,
        retry_backoff=retry.backoff if counted and retry.backoff != 1 and retry.delay else None,
        walltime=seconds(request.walltime),
        lease=seconds(request.lease),
        on_silence=str(request.on_silence) if request.on_silence is not OnSilence.STOP else None,
    )

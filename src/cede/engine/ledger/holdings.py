"""What counts against a policy, made from who holds or was promised it."""

from __future__ import annotations

from cede.engine.ledger.ledger import PoolLedger
from cede.engine.rights.cover import Holding
from cede.model.allocation import Allocation
from cede.model.lifecycle import AllocationState
from cede.model.request import Earmark, Request


def promised(ledger: PoolLedger, request: Request, earmark: Earmark) -> Holding:
    """The holding that an earmark is."""
    form = ledger.form(request)
    return Holding(
        id=request.id,
        policy_id=earmark.policy_id,
        amounts=ledger.pool.metered(request.amounts),
        preemptible=request.preemptible,
        index=earmark.index,
        rank=ledger.rank(earmark.policy_id, request),
        task_group=request.part_of or request.id,
        earmark=True,
        age=(request.submitted_at, request.index, request.id),
        footprint=earmark.footprint,
        each={} if form is None else dict(form.amounts),
    )


def held(ledger: PoolLedger, request: Request, allocation: Allocation) -> Holding:
    """The holding that a live allocation is."""
    # What is saved is not lost by stopping: progress that was saved counts as a new start.
    saved = request.saved.index if ledger.fair and request.saved is not None else 0
    return Holding(
        id=allocation.id,
        policy_id=allocation.policy_id,
        amounts=ledger.pool.metered(allocation.amounts),
        preemptible=allocation.preemptible,
        index=max(allocation.index, saved),
        rank=ledger.rank(allocation.policy_id, request),
        task_group=request.part_of or request.id,
        leaving=allocation.leaving,
        yields=allocation.yields,
        takeable=allocation.preemptible
        and not allocation.leaving
        and allocation.state is not AllocationState.LOST,
        footprint=allocation.footprint,
        each=ledger.pool.metered(allocation.each) if allocation.members else {},
    )

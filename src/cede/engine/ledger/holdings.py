"""Makes the holdings that count against a policy, from allocations and earmarks."""

from __future__ import annotations

from cede.engine.ledger.ledger import PoolLedger
from cede.engine.rights.cover import NOTHING, Holding
from cede.model.allocation import Allocation
from cede.model.amounts import Amounts
from cede.model.copying import maker
from cede.model.lifecycle import AllocationState
from cede.model.reason import Code
from cede.model.request import Earmark, Preemptions, Request

_holding = maker(Holding)
_NEVER = 1 << 62  # later than every instant
_INDICES = 1 << 62  # more than there are


def by_start(started: int | None, index: int) -> int:
    """The place of a holding by its start; one that has not started is the newest."""
    return (_NEVER if started is None else started) * _INDICES + index


def promised(ledger: PoolLedger, request: Request, earmark: Earmark) -> Holding:
    """The holding of an earmark."""
    form = ledger.form(request)
    return _holding(
        id=request.id,
        policy_id=earmark.policy_id,
        amounts=ledger.pool.metered(request.amounts),
        preemptible=request.preemptible,
        index=earmark.index if ledger.balance is None else by_start(None, earmark.index),
        rank=ledger.rank(earmark.policy_id, request),
        task_group=request.part_of or request.id,
        earmark=True,
        age=(request.submitted_at, request.index, request.id),
        footprint=earmark.footprint,
        each={} if form is None else dict(form.amounts),
    )


def held(ledger: PoolLedger, request: Request, allocation: Allocation) -> Holding:
    """The holding of a live allocation."""
    # A stop does not lose saved work, so saved progress counts as a new start.
    saved = request.saved if ledger.fair else None
    index = max(allocation.index, 0 if saved is None else saved.index)
    if ledger.balance is not None:
        started = allocation.started_at
        if started is not None and saved is not None:
            started = max(started, saved.at)
        index = by_start(started, index)
    leaving, amounts = allocation.leaving, ledger.pool.metered(allocation.amounts)
    # In the order of the fields: by name it takes half as long again, and a start makes all.
    return _holding(
        allocation.id,
        allocation.policy_id,
        amounts,
        allocation.preemptible,
        index,
        ledger.rank(allocation.policy_id, request),
        request.part_of or request.id,
        0,  # the band
        False,  # safe
        False,  # an earmark
        leaving,
        leaving and allocation.yields,
        leaving and allocation.may_go_on,
        leaving and _comes_back(request, allocation),
        leaving and _is_claimed_out(allocation),
        allocation.preemptible and not leaving and allocation.state is not AllocationState.LOST,
        None,  # the age
        allocation.footprint,
        _of_each(ledger, allocation, amounts),
    )


def _of_each(ledger: PoolLedger, allocation: Allocation, amounts: Amounts) -> Amounts:
    """The counted amounts of one task on a node, where all of them have `amounts`."""
    tasks = len(allocation.members)
    if tasks == 1:  # most
        return amounts
    return ledger.pool.metered(allocation.each) if tasks else NOTHING


def _is_claimed_out(allocation: Allocation) -> bool:
    return allocation.reason is not None and allocation.reason.code is Code.SENSITIVE_CLAIM


def _comes_back(request: Request, allocation: Allocation) -> bool:
    """Whether a leaving holder waits again as soon as it has stopped: a victim not cancelled."""
    if allocation.taken_for is None or request.cancelled:
        return False
    if allocation.may_go_on or request.retry.preemptions is Preemptions.FREE:
        return True
    used = request.retries_used + 1
    return used <= request.retry.max_retries and not request.retry.delay_before(used)

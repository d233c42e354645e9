"""Room for the head: what a waiter needs that is first in the queue and does not fit.

Where walltimes prove when it fits, that room is withheld from the moment at which it does not, and
later work of no higher standing may only have what is left beside it then, or is gone by then.
Where they do not, it is withheld once the head was passed often, as it becomes free, and for a
bounded time. One head of a pool at a time, the one of the highest standing.
"""

from __future__ import annotations

from dataclasses import replace

from cede.engine.ledger.ledger import PoolLedger
from cede.engine.queue.cursor import Candidate, Cursor, streams
from cede.engine.queue.forecast import HeadStart, head_start
from cede.engine.queue.view import head_standing
from cede.engine.state.state import State
from cede.engine.steps.covered import Covered, WithinQuota
from cede.model.plan import Plan
from cede.model.request import Request, Withhold


def withhold(
    state: State, ledger: PoolLedger, head: Request, policy_id: str, start: HeadStart
) -> bool:
    """Withhold a head's room, instead of that of heads of lower standing; whether it may be."""
    if not may_withhold(state, ledger, head, policy_id):
        return False
    for other_id in list(ledger.withheld):
        state.put(replace(state.requests[other_id], withhold=None))
    state.put(replace(head, withhold=_made(state, ledger, start)))
    state.emit("withheld", request_id=head.id, pool_id=ledger.pool.id)
    return True


def may_withhold(state: State, ledger: PoolLedger, head: Request, policy_id: str) -> bool:
    """Whether nothing is withheld for others, or only for those of lower standing."""
    standing = head_standing(ledger, policy_id, head) if ledger.withheld else None
    return standing is None or all(
        head_standing(ledger, other_policy, state.requests[other_id]) < standing
        for other_id, other_policy in ledger.withheld.items()
    )


def _made(state: State, ledger: PoolLedger, start: HeadStart) -> Withhold:
    """Until it has started or, where nothing says when that is or somebody does not keep its word,
    for a bounded time.
    """
    known = start.at if start.at is not None and start.at > state.now else None
    until = (state.now if known is None else known) + ledger.pool.settings.withhold_max
    return Withhold(ledger.pool.id, until, start.footprint, known)


def keep_heads(state: State, plan: Plan, pool_ids: list[str]) -> None:
    """Withhold the room of each pool's head where it is known when that fits."""
    for pool_id in pool_ids:
        ledger = state.ledgers[pool_id]
        if not ledger.pool.settings.withhold_max or not (ledger.timed or ledger.leaving):
            continue  # nobody is known to end
        if (head := _head(state, ledger)) is None:
            continue
        waiter, policy_id = state.requests[head.request_id], head.stream.policy_id
        if waiter.withhold is not None or not may_withhold(state, ledger, waiter, policy_id):
            continue
        start = head_start(state, ledger, waiter, known=True)
        if start is None or start.at is None or start.at <= state.now:
            continue
        others = bool(ledger.withheld)
        if withhold(state, ledger, waiter, policy_id, start) and others:
            plan.again = True  # what was kept for the other may be free for somebody


def _head(state: State, ledger: PoolLedger) -> Candidate | None:
    """The first waiter that nothing of its own keeps back, and that was promised nothing."""
    covered = Covered(state, WithinQuota(state) if state.tenants else ())
    among = streams(ledger)
    return Cursor(ledger, among, lambda each: each.own_room(ledger), covered, by_age=True).peek()


def look_again(state: State, ledger: PoolLedger) -> None:
    """Forecast the starts of a pool's heads again: holders that end early bring them forward, and
    somebody of higher standing, or a node that is lost, puts them off.
    """
    for head_id in list(ledger.withheld):
        head = state.requests[head_id]
        kept = head.withhold
        assert kept is not None, head
        if kept.pool_id != ledger.pool.id or (kept.start or state.now + 1) <= state.now:
            continue  # the word of a holder that is overdue: it has until the withholding ends
        start = head_start(state, ledger, head)
        if start is None:  # nowhere, whoever leaves
            state.put(replace(head, withhold=None))
        elif start.at != state.now:  # then it may start
            made = _made(state, ledger, start)
            if made.start is None:  # still for no longer than it was to be
                made = replace(made, until=min(kept.until, made.until))
            if made != kept:
                state.put(replace(head, withhold=made))

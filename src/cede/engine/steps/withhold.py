"""Withholds room for the head: the first waiter of the queue, which does not fit.

Where walltimes prove when the head fits, its room is withheld from the moment at which it does not
fit; later work of no higher standing may only use the rest, or must end before that instant.
Where they do not, room is withheld as it becomes free once the head was passed often, for a
bounded time. A pool withholds for one head at a time, the one of the highest standing.
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
    """Withhold a head's room in place of that of heads of lower standing; return whether that is
    allowed.
    """
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
    """The withheld room, with a bounded time: it ends with the head's start, or at the latest
    `withhold_max` after the forecast start, or after now where there is no forecast.
    """
    known = start.at if start.at is not None and start.at > state.now else None
    until = (state.now if known is None else known) + ledger.pool.settings.withhold_max
    return Withhold(ledger.pool.id, until, start.footprint, known)


def keep_heads(state: State, plan: Plan, pool_ids: list[str]) -> None:
    """Withhold the room of each pool's head where its start is known."""
    for pool_id in pool_ids:
        ledger = state.ledgers[pool_id]
        if not ledger.pool.settings.withhold_max or not (ledger.timed or ledger.leaving):
            continue  # no holder has a known end
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
            plan.again = True  # the other head's room may be free for a waiter


def _head(state: State, ledger: PoolLedger) -> Candidate | None:
    """The first waiter without a promise that is within its own bounds."""
    covered = Covered(state, WithinQuota(state) if state.tenants else ())
    among = streams(ledger)
    return Cursor(ledger, among, lambda each: each.own_room(ledger), covered, by_age=True).peek()


def look_again(state: State, ledger: PoolLedger) -> None:
    """Forecast the starts of a pool's heads again: holders that end early advance them; work of
    higher standing, or a lost node, delays them.
    """
    for head_id in list(ledger.withheld):
        head = state.requests[head_id]
        kept = head.withhold
        assert kept is not None, head
        if kept.pool_id != ledger.pool.id or (kept.start or state.now + 1) <= state.now:
            continue  # a holder is overdue: it has until the withholding ends
        start = head_start(state, ledger, head)
        if start is None:  # it fits nowhere, even with every holder gone
            state.put(replace(head, withhold=None))
        elif start.at != state.now:  # at `now` it may start, so nothing changes
            made = _made(state, ledger, start)
            if made.start is None:  # no later than the end that was set first
                made = replace(made, until=min(kept.until, made.until))
            if made != kept:
                state.put(replace(head, withhold=made))

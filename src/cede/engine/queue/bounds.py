"""The bounds on the waiters of a queue, and the verdict on each of them.

Granting keeps the bounds of every stream that it passes over (`State.passed_over`). The verdict on
a waiter is the first of them that its demand exceeds: nothing is decided again for it. Numbers that
later grants of the same pass have changed are read from the ledger, which is as the pass left it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from cede.engine.ledger.account import (
    Allowance,
    Bound,
    Room,
    Verdict,
    check,
    fits,
    pool_bounds,
)
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.tenants import quota_verdict
from cede.engine.queue.cursor import Stream, streams_of
from cede.engine.queue.forecast import spare_beside
from cede.engine.queue.view import head_standing, locate
from cede.engine.state.state import State
from cede.model.request import Request


class Met(NamedTuple):
    """The bounds that kept all waiters of a stream from starting when a pass last met it; None if
    there was no place on nodes, which is checked first.
    """

    version: int  # of the ledger at that time
    bounds: list[Allowance] | None


PassedOver = Mapping[Stream, Met]


def bounds_of(
    state: State, ledger: PoolLedger, stream: Stream, *, placed: bool = True
) -> list[Allowance]:
    """Every bound on the waiters of a stream; `placed` says whether they find places on nodes.

    In a pool of nodes promises and withheld capacity are on nodes, and so part of placement.
    """
    found = stream.own_bounds(ledger)
    pool = pool_bounds(ledger, stream.standing)
    if stream.form is None:
        found += pool
        if ledger.withheld:
            found += _withheld(state, ledger, stream)
    elif placed:
        found.append(pool[0])
    else:
        found += (*pool, Allowance(Bound.PLACEMENT, "", None))
    return found


def _withheld(state: State, ledger: PoolLedger, stream: Stream) -> Iterator[Allowance]:
    for head in withheld_for(state, ledger, stream):
        at, room = ledger.spare.get(head.id, (None, {}))
        still = (ledger.version, state.now, head.withhold)
        if at != still:
            room = spare_beside(state, ledger, head)
            ledger.spare = {head.id: (still, room)}
        yield Allowance(Bound.WITHHELD, head.id, room)


def withheld_for(state: State, ledger: PoolLedger, stream: Stream) -> Iterator[Request]:
    """Blocked heads of a stream's standing or above that capacity is withheld for; none in a pool
    of nodes, where it is on nodes.
    """
    if ledger.inventory is not None:
        return
    for request_id, policy_id in ledger.withheld.items():
        head = state.requests[request_id]
        if head_standing(ledger, policy_id, head) >= stream.standing:
            yield head


def without_withheld(
    state: State, ledger: PoolLedger, stream: Stream, room: Room, besides: Container[str]
) -> Room:
    """A room less what is withheld for heads of this standing or above, except `besides`: a victim
    of this waiter does not also make room for a head.
    """
    if not ledger.withheld:
        return room
    for head in withheld_for(state, ledger, stream):
        if head.id not in besides:
            for key, amount in ledger.pool.metered(head.amounts).items():
                if key in room:
                    room[key] -= amount
    return room


# Verdicts -------------------------------------------------------------------------------------


def verdict_on(state: State, ledger: PoolLedger, request: Request, policy_id: str) -> Verdict:
    """The bound that keeps a waiter from starting in one pool, as the last pass met it."""
    if ledger.pool.quarantine is not None:
        return Verdict(Bound.QUARANTINE, ledger.pool.id)
    if request.id in state.delayed:
        return Verdict(Bound.DELAY, request.id, retry_at=request.not_before)
    if request.earmark is not None and request.earmark.pool_id == ledger.pool.id:
        return Verdict(Bound.OWN_PROMISE, request.id)
    verdict = quota_verdict(state, request)
    if not verdict.fits:
        return verdict
    key, demand = ledger.queue_of(policy_id, request), ledger.pool.metered(request.amounts)
    bounds: list[Allowance] = []
    for stream in streams_of(ledger, key):
        bounds = _met(state, ledger, stream)
        share = next((each.left for each in bounds if each.bound is Bound.SHARE), None)
        if share is not None and fits(demand, share):
            break  # the stream in which it would be granted; otherwise the last
    return check(demand, _on_starting(bounds, request.id))


def _met(state: State, ledger: PoolLedger, stream: Stream) -> list[Allowance]:
    """The bounds of a stream as the last pass left them; computed now if no pass has decided the
    pool since it changed.
    """
    met: PassedOver = state.passed_over.get(ledger.pool.id, {})
    known = met.get(stream)
    if known is None or ledger.pool.id in state.dirty:
        key, rights = stream.key, stream.rights
        placed = stream.form is None or bool(
            locate(state, ledger, key, rights, stream.standing, promise=False)
        )
        return bounds_of(state, ledger, stream, placed=placed)
    if known.bounds is not None and known.version == ledger.version:
        return known.bounds
    # Later grants of the same pass have changed the numbers, and only taken places.
    return bounds_of(state, ledger, stream, placed=known.bounds is not None)


def _on_starting(bounds: Iterable[Allowance], request_id: str) -> list[Allowance]:
    """The bounds on starting: without the one on rights, and without what is withheld for the
    waiter itself.
    """
    return [
        each
        for each in bounds
        if each.bound is not Bound.SHARE
        and (each.bound is not Bound.WITHHELD or each.whose != request_id)
    ]

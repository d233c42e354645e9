"""Granting: the first steps of a pass, which stop no holder.

Per pool, waiters are granted in the one order as they fit; waiters behind a blocked head may pass
it a bounded number of times (L4), after which its room is withheld for it. Requests with places in
several pools propose by policy priority (deferred acceptance): a pool keeps proposals in its own
order as they fit, and a request that it does not keep proposes to its next pool.
"""

from __future__ import annotations

from collections.abc import Container
from functools import partial
from typing import Any

from cede.engine.ledger.account import (
    Room,
    fits,
    free_now,
    headroom,
    limits_room,
    missing,
    pool_bounds,
    smallest,
)
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.queue import QueueKey
from cede.engine.lifecycle.resuming import first_point
from cede.engine.queue.bounds import Met, bounds_of
from cede.engine.queue.cursor import Candidate, Cursor, Stream, order, streams
from cede.engine.queue.forecast import HeadStart, head_start
from cede.engine.queue.proposals import Proposals
from cede.engine.queue.view import locate, members
from cede.engine.rights.standing import Standing
from cede.engine.state.state import State
from cede.engine.steps.covered import Covered, PromisedElsewhere, WithinQuota
from cede.engine.steps.earmarks import settle
from cede.engine.steps.withhold import look_again, withhold
from cede.model.allocation import Allocation, Member, allocation_id
from cede.model.amounts import plus
from cede.model.bounds import BYPASS_MAX_DEFAULT
from cede.model.copying import replace
from cede.model.lifecycle import RequestStatus
from cede.model.plan import Grant, Plan
from cede.model.request import Request
from cede.model.shape import Footprint

# Waiters of one stream that a pass tries for a place beside a withheld head.
_BACKFILL_LOOK = 64


def grant_all(state: State, plan: Plan, pool_ids: list[str]) -> None:
    """Grant everything that fits in these pools."""
    if not state.several or len(pool_ids) == 1:
        for pool_id in pool_ids:
            _Pool(state, plan, pool_id).fill()
        return
    proposals = Proposals(state, pool_ids)
    mark, start, again = state.mark(), len(plan.decisions), plan.again
    while True:
        for pool_id in pool_ids:
            _Pool(state, plan, pool_id, proposals.barred(pool_id)).fill()
        if not proposals.next_round(plan.decisions[start:]):
            return
        state.undo(mark)
        del plan.decisions[start:]
        plan.again = again


class _Pool:
    """Granting in one pool, in one pass."""

    def __init__(
        self, state: State, plan: Plan, pool_id: str, besides: Container[str] = ()
    ) -> None:
        self.state = state
        self.plan = plan
        self.ledger = state.ledgers[pool_id]
        if state.several and self.ledger.inventory is None:
            besides = PromisedElsewhere(state, self.ledger, besides)
        self.besides = WithinQuota(state, besides) if state.tenants else besides
        self.streams = streams(self.ledger)
        # Answers so far, each with the versions for which it is valid.
        self._placed: dict[Any, tuple[Any, Footprint | None]] = {}
        self._starts: dict[str, tuple[Any, HeadStart | None]] = {}
        self._met: dict[Stream, Met] = {}
        # Whether waiters differ in eligible nodes: some node is a policy's own, or claimed.
        self._apart = self.ledger.homes.matter
        self.fitting = Cursor(self.ledger, self.streams, self._room, self.besides)
        self.owners = self._owners()
        self._in_order: Cursor | None = None

    def fill(self) -> None:
        if self.ledger.withheld:
            look_again(self.state, self.ledger)
        while (best := self._best()) is not None:
            if best.request_id in self.ledger.earmarks or self._may_pass(best):
                grant(self.state, self.plan, self.ledger, best)
        if self.ledger.withheld:
            self._backfill()
        self.state.passed_over[self.ledger.pool.id] = self._met

    def _best(self) -> Candidate | None:
        if self.ledger.earmarks and self.owners.peek() is None:
            self.owners = self._owners()  # a grant may have changed an owner's rights
        found = [
            each for each in (self.fitting.peek(), self.owners.peek(), self._withheld_one()) if each
        ]
        return min(found, key=lambda each: each.order, default=None)

    def _owners(self) -> Cursor | Owners:
        """The owners of promises: they start as soon as their capacity is free."""
        if self.ledger.inventory is not None:
            return Owners(self.state, self.ledger)
        return Cursor(self.ledger, _owed_streams(self.ledger), self._owed_room)

    def _owed_room(self, stream: Stream) -> Room:
        return smallest((free_now(self.ledger), limits_beside(self.ledger, stream.policy_id)))

    def _room(self, stream: Stream) -> Room | None:
        """The headroom of a waiter of this stream now."""
        bounds = None
        if stream.form is None or self._where(stream):
            bounds = bounds_of(self.state, self.ledger, stream)
        self._met[stream] = Met(self.ledger.version, bounds)
        return None if bounds is None else headroom(bounds)

    def _room_beside(self, stream: Stream, head_id: str) -> Room | None:
        """The same if nothing were withheld for a head."""
        if stream.form is not None and not self._where(stream, (head_id,)):
            return None
        own = stream.own_bounds(self.ledger)
        return headroom((*own, *pool_bounds(self.ledger, stream.standing)))

    def _where(self, stream: Stream, own: Container[str] = ()) -> Footprint | None:
        """The nodes for the next waiter of a stream, in a pool of nodes; where no node is owned or
        claimed, the same for every policy of that standing.
        """
        assert stream.form is not None and self.ledger.inventory is not None
        asked = (stream.key, stream.rights) if self._apart else (stream.form, stream.standing)
        still = (self.ledger.inventory.version, tuple(self.ledger.withheld))
        if not own and (known := self._placed.get(asked)) is not None and known[0] == still:
            return known[1]
        footprint = locate(
            self.state,
            self.ledger,
            stream.key,
            stream.rights,
            stream.standing,
            promise=False,
            own=own,
        )
        if not own:
            self._placed[asked] = (still, footprint)
        return footprint

    def _withheld_one(self) -> Candidate | None:
        """A head with withheld room, if it fits; its own withheld room counts as free for it."""
        for request_id, policy_id in self.ledger.withheld.items():
            request = self.state.requests[request_id]
            for stream in self.streams:
                if stream.policy_id != policy_id or request_id not in stream.queue:
                    continue
                room = self._room_beside(stream, request_id)
                if room is not None and fits(stream.queue.demand(request_id), room):
                    age = (*request.age, request_id)
                    return Candidate(self.fitting.order_of(stream, age), stream, age)
        return None

    # Passing a blocked head -------------------------------------------------------------------

    def _may_pass(self, best: Candidate) -> bool:
        """Whether a fitting waiter may start now although a head before it is blocked (L4)."""
        if self._is_first(best):
            return True
        if self._in_order is None:
            self._in_order = Cursor(
                self.ledger,
                self.streams,
                lambda each: each.own_room(self.ledger),
                Covered(self.state, self.besides),
                by_age=True,  # a score orders only the waiters that fit
            )
        head = self._blocked_head(self._in_order, best)
        if head is None or not self._in_the_way(head, best):
            return True
        waiter = self.state.requests[head.request_id]
        if waiter.withhold is not None or self._ends_in_time(head, best):
            return True
        settings = self.ledger.pool.settings
        if waiter.bypassed < settings.bypass_max:
            return self._passed(waiter)
        start = self._start(waiter) if settings.withhold_max else None
        if start is None:
            return True
        if start.at is None and waiter.bypassed < (settings.bypass_max or BYPASS_MAX_DEFAULT):
            return self._passed(waiter)  # its room may never come, so some waiters pass it first
        return not withhold(self.state, self.ledger, waiter, head.stream.policy_id, start)

    def _passed(self, head: Request) -> bool:
        self.state.put(replace(head, bypassed=head.bypassed + 1))
        return True

    def _blocked_head(self, in_order: Cursor, best: Candidate) -> Candidate | None:
        """The first waiter before `best` that fits nowhere. A waiter that does not fit at home
        only may start elsewhere, so neither it nor the rest of its queue blocks others.
        """
        place = in_order.order_of(best.stream, best.age)
        while (head := in_order.peek()) is not None and head.order < place:
            alike = self.ledger.streams[head.stream.key]
            if not (self._apart and any(map(self._where, alike))):
                return head
            in_order.skip_stream()
        return None

    def _is_first(self, best: Candidate) -> bool:
        """Whether no waiter at all stands before it: the common case, and cheap to check."""
        queue = best.stream.queue
        return best.age == queue.oldest and all(
            each.standing < best.stream.standing or each.queue is queue or not len(each.queue)
            for each in self.streams
        )

    def _in_the_way(self, head: Candidate, best: Candidate) -> bool:
        free = free_now(self.ledger)
        wanted = head.stream.queue.demand(head.request_id)
        taken = best.stream.queue.demand(best.request_id)
        if fits(plus(wanted, taken), free) and head.stream.key.scored is not None:
            return False  # only a score puts `best` first, and there is enough for both
        if fits(wanted, free):  # enough in sum, but not in one place
            return any(key in taken for key in wanted)
        return any(key in taken for key in missing(wanted, free))

    def _ends_in_time(self, head: Candidate, best: Candidate) -> bool:
        """Whether its walltime proves that a waiter cannot delay the head."""
        walltime = self.state.requests[best.request_id].walltime
        if walltime is None:
            return False
        waiter = self.state.requests[head.request_id]
        if waiter.withhold is not None:
            at = waiter.withhold.start
        else:
            start = self._start(waiter)
            at = None if start is None else start.at
        return at is not None and self.state.now + walltime <= at

    def _start(self, waiter: Request) -> HeadStart | None:
        """The latest start of a blocked head, computed once for all waiters that would pass it."""
        still = (self.ledger.version, tuple(self.ledger.withheld))
        known = self._starts.get(waiter.id)
        if known is None or known[0] != still:
            known = (still, head_start(self.state, self.ledger, waiter))
            self._starts[waiter.id] = known
        return known[1]

    def _backfill(self) -> None:
        """Grant withheld room to short work whose walltime proves that it ends in time."""
        for head_id in list(self.ledger.withheld):
            head = next((each for each in self.streams if head_id in each.queue), None)
            if head is None:  # it waits elsewhere, or not yet
                continue
            age = (*self.state.requests[head_id].age, head_id)
            first = Candidate(self.fitting.order_of(head, age), head, age)
            for stream in self.streams:
                self._backfill_stream(first, stream)

    def _backfill_stream(self, head: Candidate, stream: Stream) -> None:
        beside = partial(self._room_beside, head_id=head.request_id)
        cursor = Cursor(self.ledger, [stream], beside, self.besides)
        for _ in range(_BACKFILL_LOOK):
            best = cursor.peek()
            if best is None:
                return
            if best.request_id != head.request_id and self._ends_in_time(head, best):
                grant(self.state, self.plan, self.ledger, best, beside=head.request_id)
            else:
                cursor.skip()


def _owed_streams(ledger: PoolLedger) -> list[Stream]:
    return [
        Stream(queue, QueueKey(policy_id, rank=rank), rights, ledger.standing(rank, rights))
        for (policy_id, rank, rights), queue in ledger.owed.items()
        if len(queue)
    ]


def limits_beside(ledger: PoolLedger, policy_id: str) -> Room:
    """The room that the limits of a policy and those above it leave beside actual holdings; the
    owner of an earmark starts only if this has room too.
    """
    return limits_room(ledger, ledger.chains[policy_id], ledger.used_promised)


class Owners:
    """The owners of earmarks in a pool of nodes, in order, for which the promised or other
    eligible nodes are free.
    """

    def __init__(self, state: State, ledger: PoolLedger) -> None:
        self._state, self._ledger = state, ledger
        self._heap: list[Candidate] = []
        for stream in _owed_streams(ledger):
            for owner_id in stream.queue:
                if self._can_start(owner_id, stream):
                    age = (*state.requests[owner_id].age, owner_id)
                    first = order(stream.standing, age, ledger.satisfaction(stream.key))
                    self._heap.append(Candidate(first, stream, age))
        self._heap.sort(key=lambda each: each.order, reverse=True)

    def peek(self) -> Candidate | None:
        while self._heap:
            if self._can_start(self._heap[-1].request_id, self._heap[-1].stream):
                return self._heap[-1]
            self._heap.pop()
        return None

    def _can_start(self, owner_id: str, stream: Stream) -> bool:
        mark = self._ledger.earmarks.get(owner_id)
        if mark is None or not fits(mark.amounts, limits_beside(self._ledger, mark.policy_id)):
            return False
        owner = self._state.requests[owner_id]
        return owned_place(self._state, self._ledger, owner, stream.standing) is not None


def owned_place(
    state: State, ledger: PoolLedger, owner: Request, standing: Standing
) -> Footprint | None:
    """The nodes on which the owner of an earmark starts: the promised ones, or others that became
    free before them, so that no waiter below it gets those.
    """
    mark, inventory = ledger.earmarks[owner.id], ledger.inventory
    assert inventory is not None
    if inventory.has(mark.footprint, mark.each):
        return mark.footprint
    if not fits(mark.amounts, free_now(ledger)):
        return None
    key = ledger.queue_of(mark.policy_id, owner)
    rights = ledger.rights(owner.id)
    return locate(state, ledger, key, rights, standing, promise=False, own=(owner.id,))


def grant(
    state: State, plan: Plan, ledger: PoolLedger, candidate: Candidate, beside: str | None = None
) -> None:
    """Turn a waiter into a holder. S1, law 2: the fit is checked again by the same function.

    Room that is withheld for `beside` counts as free: the holder ends before that head starts.
    """
    request = state.requests[candidate.request_id]
    policy_id = candidate.stream.policy_id
    demand = ledger.pool.metered(request.amounts)
    assert fits(demand, free_now(ledger)), (request, free_now(ledger))
    promise = request.earmark if request.id in ledger.earmarks else None
    sits = _members(state, ledger, request, candidate, beside)
    allocation = Allocation(
        id=allocation_id(request.id, request.attempt),
        request_id=request.id,
        pool_id=ledger.pool.id,
        policy_id=policy_id,
        amounts=request.amounts,
        preemptible=request.preemptible,
        attempt=request.attempt,
        # Law 4: a promise kept stays at its place; behind later grants it could lose its rights.
        index=state.next_index() if promise is None else promise.index,
        allocated_at=state.now,
        walltime=request.walltime,
        lease_until=None if request.lease is None else state.now + request.lease,
        members=sits,
        resume=first_point(state, request, sits),
    )
    plan.granted[allocation.id] = request
    state.put(_holding(request))
    state.put(allocation)
    state.emit("granted", request_id=request.id, pool_id=ledger.pool.id, attempt=request.attempt)
    plan.decisions.append(Grant(request.id, ledger.pool.id, allocation.id, promise is not None))
    kept = [each for each in (request.earmark, request.withhold) if each is not None]
    sits_on = (ledger.pool.id, dict(allocation.footprint))
    if any((each.pool_id, dict(each.footprint)) != sits_on for each in kept):
        plan.again = True  # what was kept for it in another pool, or on other nodes, is free now
    if settle(state, ledger):  # a grant of higher standing may cut into earmarks below it
        plan.again = True


def _members(
    state: State, ledger: PoolLedger, request: Request, candidate: Candidate, beside: str | None
) -> tuple[Member, ...]:
    """The members of an allocation in a pool of nodes: on the promised nodes, or the best ones."""
    form = ledger.form(request)
    if form is None:
        return ()
    footprint: Footprint | None
    if request.id in ledger.earmarks:
        footprint = owned_place(state, ledger, request, candidate.stream.standing)
    else:
        own = {request.id, *((beside,) if beside is not None else ())}
        stream = candidate.stream
        footprint = locate(
            state, ledger, stream.key, stream.rights, stream.standing, promise=False, own=own
        )
    assert footprint is not None, request
    return tuple(members(state, ledger, footprint, dict(form.amounts), _folders(request)))


def _folders(request: Request) -> tuple[str, ...]:
    """The checkpoint folder of each task: of its last known save, or of one not yet reported."""
    saved = () if request.saved is None else request.saved.folders
    pinned = saved if request.pin is None else request.pin.folders
    # Pins of an earlier version are sorted; the folders of a save are in the order of tasks.
    return saved if sorted(pinned) == sorted(saved) else pinned


def _holding(request: Request) -> Request:
    return replace(
        request,
        status=RequestStatus.ALLOCATED,
        reason=None,
        earmark=None,
        bypassed=0,
        withhold=None,
        lease_until=None,
    )

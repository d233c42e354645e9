"""Taking: what a pass does for waiters that no pool could grant.

A preemption stops holders of strictly lower standing and promises the capacity, whole, to one
waiter in the same commit (law 4). Later decisions of the pass count earlier beneficiaries as
holding and their victims as still there. Nobody is stopped unless the beneficiary then surely fits.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from typing import Any

from cede.engine.books import Books
from cede.engine.earmarks import settle
from cede.engine.exchange import Part, exchanges, yielding
from cede.engine.farewells import part
from cede.engine.fit import Room, fits, free_to_promise, own_room, rights_if_granted
from cede.engine.forecast import earliest_start
from cede.engine.front import Front, Stream, streams
from cede.engine.grants import Covered, WithinQuota, without_withheld
from cede.engine.lane import LaneKey
from cede.engine.patience import Taker, may_take, note_stage
from cede.engine.pricing import is_immediate, parting_time
from cede.engine.share import Holding
from cede.engine.standing import Standing
from cede.engine.state import State
from cede.engine.victims import Missing, find_victims, rule
from cede.engine.weighing import weighed
from cede.model.amounts import Amounts, add_to, plus
from cede.model.plan import Plan, Preemption
from cede.model.policy import Policy
from cede.model.reason import Code, Reason
from cede.model.request import Earmark, Request
from cede.model.settings import Price
from cede.model.shape import Footprint, Form


def preempt_all(state: State, plan: Plan, pool_ids: list[str]) -> None:
    """Take for every waiter of these pools that may, in the one order."""
    taking = Taking(state, plan)
    for pool_id in pool_ids:
        taking.in_pool(pool_id)


@dataclass(frozen=True, slots=True)
class Offer:
    """One pool's side of a taking. `short` is what the waiter misses of what could be promised,
    `whole` what it would miss if nothing could.
    """

    books: Books
    policy: Policy
    demand: Amounts
    taker: Taker  # the waiter as it will be once granted
    short: Amounts
    whole: Amounts
    form: Form | None = None
    footprint: Footprint | None = None  # in a pool of nodes: where what could be promised is
    under: tuple[Part, ...] = ()  # what it misses of the limits above it, by policy
    share: tuple[Part, ...] = ()  # what must leave of its own policy's share

    @property
    def bounded(self) -> bool:
        """Whether a policy above the waiter's has a limit."""
        above = self.books.chains[self.policy.id][1:]
        return any(self.books.policies[each].limit for each in above)

    @property
    def counts_free(self) -> bool:
        """Whether what is free or on its way is not to be freed by victims as well."""
        return self.books.pool.settings.count_free

    @property
    def missing(self) -> Missing:
        """What its victims must free."""
        short = self.short if self.counts_free else self.whole
        return Missing(short, self.under, self.share, self.form)

    @property
    def lacks(self) -> bool:
        """Whether somebody must be stopped for it."""
        return bool(self.short or self.under or self.share)

    @property
    def contested(self) -> bool:
        """Whether what suffices is promised already, to someone of lower standing."""
        return not fits(plus(self.books.promised(), self.demand), self.books.pool.capacity)


class Taking:
    """All the taking of one round. `claimed` is what earlier waiters wait for, on its way."""

    def __init__(self, state: State, plan: Plan) -> None:
        self.state = state
        self.plan = plan
        self.claimed: dict[str, dict[str, int]] = {}
        self.sure: set[str] = set()  # those earlier waiters
        self.no_set: dict[LaneKey, tuple[int, Amounts]] = {}  # what nobody could be stopped for

    def in_pool(self, pool_id: str) -> None:
        books = self.state.books[pool_id]
        covered = Covered(self.state, WithinQuota(self.state, self.sure))
        front = Front(books, streams(books), lambda stream: self._reach(books, stream), covered)
        while (candidate := front.peek()) is not None:
            waiter = self.state.requests[candidate.request_id]
            stream = candidate.stream
            if not may_take(self.state, books, waiter, stream.policy_id) or self._knows(
                books, stream, stream.lane.demand(waiter.id)
            ):
                front.skip()
                continue
            served = self._serve(waiter)
            if not served and books.ground is not None:
                front.skip_stream()  # what does not fit for one of a form fits for none
            elif not served or waiter.id in self.sure:
                front.skip()

    def _knows(self, books: Books, stream: Stream, demand: Amounts) -> bool:
        """Whether no set of victims was found for less, and nothing has changed since."""
        version, less = self.no_set.get(stream.key, (-1, {}))
        return version == books.version and all(
            demand.get(key, 0) >= amount for key, amount in less.items()
        )

    def _reach(self, books: Books, stream: Stream) -> Room | None:
        """What a waiter of this stream could have if every holder it may stop were gone."""
        below = books.takeable_below(stream.standing)
        mine = books.takeable_inside(stream.policy_id, stream.band(books), stream.standing)
        on_its_way = books.leaving or books.earmarks
        if stream.form is not None and not (below or mine or on_its_way):
            return None  # nothing but what is free now, which granting has tried
        gone = yielding(books, stream.key, stream.rights)
        own = stream.own_room(books, alone=True, gone=gone)
        if own is None:
            return None
        for above in books.chains[stream.policy_id][1:]:
            for key, left in _under(books, above, stream.standing).items():
                own[key] = min(own[key], left + mine.get(key, 0))  # its own policy's are below it
        withheld = [each for each in books.withheld if each in stream.lane]
        room = self._promisable(books, stream, withheld)
        for key in room:
            room[key] = min(own[key], room[key] + below.get(key, 0) + mine.get(key, 0))
        return room

    def _promisable(self, books: Books, stream: Stream, own: Container[str]) -> Room:
        """What may be promised to a waiter of this stream; what is withheld for `own` is not in its
        way.
        """
        room = free_to_promise(books, stream.standing)
        for key, amount in self.claimed.get(books.pool.id, {}).items():
            room[key] -= amount
        return without_withheld(self.state, books, stream, room, own)

    def offers(self, waiter: Request, policy: Policy) -> Iterator[Offer]:
        """What one of its pools could do for a waiter; nothing where its own bounds stop it. Where
        home is a place, at home first.
        """
        books = self.state.books[policy.pool_id]
        if not may_take(self.state, books, waiter, policy.id):
            return
        key = books.lane_of(policy.id, waiter)
        lane = books.lanes.get(key)
        if lane is None or waiter.id not in lane:
            return
        demand = lane.demand(waiter.id)
        if not fits(demand, own_room(books, key, alone=True)):
            return
        band = books.band(key, demand)
        for rights, share in _levels(books, key, demand, band):
            stream = Stream(lane, key, rights, books.standing(key.rank, rights))
            yield self._offer(waiter, policy, stream, band, share)

    def _offer(
        self, waiter: Request, policy: Policy, stream: Stream, band: int, share: tuple[Part, ...]
    ) -> Offer:
        """What a pool could do for a waiter at these rights, for which so much of a share must
        leave.
        """
        books, demand = self.state.books[policy.pool_id], stream.lane.demand(waiter.id)
        under = tuple(_missing_above(books, policy.id, demand))
        taker = Taker(waiter, stream.key, stream.rights, band, stream.standing)
        if stream.form is not None:
            where = None if under or share else taker.locate(self.state, books)
            return Offer(
                books, policy, demand, taker, demand, demand, stream.form, where, under, share
            )
        room = self._promisable(books, stream, (waiter.id,))
        short = {key: amount - room[key] for key, amount in demand.items() if amount > room[key]}
        whole = {key: amount - min(room[key], 0) for key, amount in demand.items()}
        return Offer(books, policy, demand, taker, short, whole, under=under, share=share)

    def _serve(self, waiter: Request) -> bool:
        """Promise a waiter its demand in one of its pools; whether anything was decided.

        Where what is on its way suffices nobody need be stopped, so that is asked of all first;
        but in a pool where only what victims free counts.
        """
        places = self.state.places(waiter.id)
        offers = [each for policy in places for each in self.offers(waiter, policy)]
        # Who exchanges needs everybody it stops for room: a larger demand may, and a smaller not.
        alike = len(places) == 1 and not any(each.share for each in offers)
        if any(not each.counts_free and self._stop(waiter, each, alike) for each in offers):
            return True
        for offer in offers:
            if offer.footprint is not None:  # on its way: promised at once, since nodes have names
                self._promise(waiter, offer, offer.footprint)
                return True
            if offer.lacks or offer.contested:
                continue
            if offer.bounded:  # promised at once too: a claim says nothing about limits
                self._promise(waiter, offer)
                return True
            add_to(self.claimed.setdefault(offer.books.pool.id, {}), offer.demand)
            self.sure.add(waiter.id)
            return True
        return any(self._take(waiter, offer, alike) for offer in offers)

    def _take(self, waiter: Request, offer: Offer, alike: bool) -> bool:
        """Stop whom it must, or win the promise of someone of lower standing; whether it could."""
        if not offer.lacks:
            self._promise(waiter, offer)
            return True
        return offer.counts_free and self._stop(waiter, offer, alike)  # else that was tried first

    def _stop(self, waiter: Request, offer: Offer, alike: bool) -> bool:
        """Stop others, if that may be and is worth it; whether it is.

        Where waiters are `alike` that nobody can be stopped for one is true of larger ones too.
        """
        choice = find_victims(self.state, offer.books, offer.taker, offer.missing)
        if choice.victims is None:
            by_price = offer.books.pool.settings.price is Price.CHECKPOINT
            if choice.best is None and alike and by_price:
                self.no_set[offer.taker.key] = (offer.books.version, offer.demand)
            return False
        victims = [each.holding for each in choice.victims]
        if starts_by_itself(self.state, offer.books, waiter, victims):
            return False
        mark, decided, again = self.state.mark(), len(self.plan.decisions), self.plan.again
        if self._preempt(waiter, offer, victims, choice.cost):
            return True
        # Of its own policy somebody rose above it, too, whose promise it would have cut.
        assert offer.share, "the waiter's own promise must hold"
        self.state.undo(mark)
        del self.plan.decisions[decided:]
        self.plan.again = again
        return False

    def _preempt(self, waiter: Request, offer: Offer, victims: list[Holding], cost: float) -> bool:
        """Stop these, and promise the waiter its demand; whether the promise holds."""
        books, policy = offer.books, offer.policy
        reasons = [_stop_reason(offer, each) for each in victims]
        candidates: list[dict[str, Any]] = []
        if self.plan.weigh and books.pool.settings.price is Price.CHECKPOINT:
            candidates = weighed(self.state, books, offer.taker, offer.missing)
        note_stage(self.state, books, victims)
        for victim, reason in zip(victims, reasons, strict=True):
            part(self.state, victim.id, reason, taken_for=waiter.id)
        self.plan.decisions.append(
            Preemption(
                beneficiary_id=waiter.id,
                pool_id=books.pool.id,
                victims=tuple(victim.id for victim in victims),
                reason=_strongest(reasons),
                cost=cost,
                weighed=tuple(candidates),
            )
        )
        footprint: Footprint | None = ()
        if books.ground is not None:  # the victims are on their way out, so it can be promised now
            footprint = offer.taker.locate(self.state, books)
        return footprint is not None and self._earmark(books, waiter, policy, footprint)

    def _promise(self, waiter: Request, offer: Offer, footprint: Footprint = ()) -> None:
        """Promise a waiter what nobody has to be stopped for."""
        held = self._earmark(offer.books, waiter, offer.policy, footprint)
        assert held, "the waiter's own promise must hold"

    def _earmark(
        self, books: Books, waiter: Request, policy: Policy, footprint: Footprint = ()
    ) -> bool:
        """Promise a waiter its demand; whether that holds."""
        earmark = Earmark(books.pool.id, policy.id, self.state.next_index(), footprint)
        # What is promised need not be withheld as well.
        self.state.put(replace(waiter, earmark=earmark, withhold=None))
        self.state.emit("earmarked", request_id=waiter.id, pool_id=books.pool.id)
        settle(self.state, books)
        self.plan.again = True  # what was freed may be more than was needed
        return self.state.requests[waiter.id].earmark is not None


def _levels(
    books: Books, key: LaneKey, demand: Amounts, band: int
) -> Iterator[tuple[int, tuple[Part, ...]]]:
    """The rights at which a waiter may be served, and what must leave of a share for them: at home
    before elsewhere; as things are before in exchange for others.
    """
    if books.homes.decide:
        for rights in books.homes.levels(key.policy_id, key.preemptible):
            yield rights, ()
        return
    rights = rights_if_granted(books, key.policy_id, demand, key.preemptible, band)
    yield rights, ()
    for higher, share in exchanges(books, key, demand, band, rights):
        yield higher, (share,)


def starts_by_itself(state: State, books: Books, waiter: Request, victims: list[Holding]) -> bool:
    """Whether walltimes prove that a waiter starts as soon as if these were stopped for it."""
    if not books.pool.settings.wait_first or is_immediate(books, waiter):
        return False
    start = earliest_start(state, books, waiter)
    soon = max((parting_time(state, books, each) for each in victims), default=0)
    return start is not None and start.at <= state.now + soon


def _under(books: Books, above: str, bound: Standing) -> Room:
    """What an ancestor's limit would leave if every holder below it that may be stopped were."""
    used, leaving = books.used[above], books.used_leaving[above]
    below = books.takeable_below(bound, above)
    return {
        key: limit - used.get(key, 0) + leaving.get(key, 0) + below.get(key, 0)
        for key, limit in books.policies[above].limit.items()
    }


def _missing_above(books: Books, policy_id: str, demand: Amounts) -> Iterator[tuple[str, Amounts]]:
    """What a demand misses of each limit above its policy, which is capacity for those below."""
    for above in books.chains[policy_id][1:]:
        used, leaving = books.used[above], books.used_leaving[above]
        missing = {
            key: over
            for key, limit in books.policies[above].limit.items()
            if key in demand
            and (over := demand[key] + used.get(key, 0) - leaving.get(key, 0) - limit) > 0
        }
        if missing:
            yield above, missing


def _stop_reason(offer: Offer, victim: Holding) -> Reason:
    books, taker = offer.books, offer.taker
    code = rule(books, victim, taker)
    if offer.share and victim.policy_id == taker.policy_id:
        code = Code.EXCHANGE
    holder = books.policies[victim.policy_id]
    detail: dict[str, Any] = {
        "pool": books.pool.name,
        "policy": holder.name,
        "beneficiary": taker.request.id,
    }
    if code in (Code.PRIORITY, Code.HIGHER_CLASS, Code.EXCHANGE):
        detail |= {"rank": taker.rank, "victim_rank": victim.rank}
    return Reason(code, detail)


def _strongest(reasons: list[Reason]) -> Reason:
    """The rule of a whole set: reclaim if any victim was reclaimed, then priority, then its own
    policy.
    """
    ranked = (
        *(Code.STARVATION, Code.RECLAIM, Code.HIGHER_CLASS),
        *(Code.EXCHANGE, Code.PRIORITY, Code.OWN_POLICY),
    )
    return min(reasons, key=lambda each: ranked.index(each.code))

"""Preemption: the step of a pass for waiters that no pool could grant.

A preemption stops holders of strictly lower standing or, where those do not make room, holders of
policies that keep their reserves (`victims.amounts`). It promises the capacity, whole, to one
waiter in the same commit (law 4). Later decisions of the pass count earlier beneficiaries as
holding and their victims as still there. No holder is stopped unless the beneficiary then surely
fits.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any, NamedTuple

from cede.engine.fair.status import Starving
from cede.engine.ledger.account import (
    Room,
    check,
    fits,
    free_to_promise,
    headroom,
    limit_room,
    limits_room,
    lower,
    missing,
    own_bounds,
    rights_if_granted,
    staying,
)
from cede.engine.ledger.exchange import Part, exchanges, yielding
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.queue import QueueKey
from cede.engine.lifecycle.stopping import request_stop
from cede.engine.queue.bounds import without_withheld
from cede.engine.queue.cursor import Cursor, Stream, streams
from cede.engine.queue.forecast import earliest_start
from cede.engine.rights.cover import Holding
from cede.engine.rights.standing import IN_SHARE, LOWEST, WITHIN_SHARE, Standing
from cede.engine.shares.prefix import BY_RIGHTS, GROUPS
from cede.engine.shares.publish import hunger, hungriest
from cede.engine.state.state import State
from cede.engine.steps.covered import Covered, WithinQuota
from cede.engine.steps.earmarks import drop, settle
from cede.engine.steps.taken_back import take_back_grant
from cede.engine.victims.amounts import has_reserve_left, inside_reserve
from cede.engine.victims.cheapest import Choice
from cede.engine.victims.choose import Missing, find_victims, rule
from cede.engine.victims.pricing import is_immediate, stop_progress_time
from cede.engine.victims.protection import (
    Preemptor,
    first_young,
    may_take,
    note_stage,
    own_promises,
    return_grace_end,
    spares_within_share,
    stage_of,
)
from cede.engine.victims.weighing import in_short, weighed_for
from cede.model.amounts import Amounts, add_to, show, take_from, within
from cede.model.copying import replace
from cede.model.plan import ANY, Plan, Preemption, Stopped
from cede.model.policy import Policy
from cede.model.reason import Code, Reason
from cede.model.request import Earmark, Request
from cede.model.settings import Patience, Price
from cede.model.shape import Footprint, Form


def preempt_all(state: State, plan: Plan, pool_ids: list[str]) -> None:
    """Preempt for every waiter of these pools that may, in the one order."""
    taking = Taking(state, plan)
    for pool_id in pool_ids:
        taking.in_pool(pool_id)


class Offer(NamedTuple):
    """The means of one pool to serve a waiter. `short` is the part of the demand that exceeds the
    promisable capacity, `whole` the same if nothing were promisable.
    """

    ledger: PoolLedger
    policy: Policy
    demand: Amounts
    preemptor: Preemptor  # the waiter as it will be once granted
    short: Amounts
    whole: Amounts
    form: Form | None = None
    footprint: Footprint | None = None  # in a pool of nodes: the place that could be promised
    under: tuple[Part, ...] = ()  # the amounts missing under the limits above it, by policy
    share: tuple[Part, ...] = ()  # the amounts that must leave its own policy's share
    instead_of: tuple[str, ...] = ()  # owners of the promises that give way to that footprint

    @property
    def counts_free(self) -> bool:
        """Whether free and leaving capacity counts toward the missing amount."""
        return self.ledger.pool.settings.count_free

    @property
    def missing(self) -> Missing:
        """The amounts that its victims must free."""
        short = self.short if self.counts_free else self.whole
        return Missing(short, self.under, self.share, self.form)

    @property
    def lacks(self) -> bool:
        """Whether a holder must be stopped for it."""
        return bool(self.short or self.under or self.share)

    @property
    def fits_beside(self) -> bool:
        """Whether it fits beside the promises to others of its standing or above."""
        ledger, key, standing = self.ledger, self.preemptor.key, self.preemptor.standing
        above = ledger.chains[self.policy.id][1:]
        rooms = [_promisable_under(ledger, each, key, standing, own=False) for each in above]
        rooms.append(free_to_promise(ledger, standing))
        return all(fits(self.demand, each) for each in rooms)

    @property
    def contested(self) -> bool:
        """Whether the sufficient capacity is already promised to a waiter of lower standing."""
        above = self.ledger.chains[self.policy.id][1:]
        return not (
            fits(self.demand, free_to_promise(self.ledger))
            and fits(self.demand, limits_room(self.ledger, above, self.ledger.used_leaving))
        )


class Taking:
    """All preemptions of one round."""

    def __init__(self, state: State, plan: Plan) -> None:
        self.state = state
        self.plan = plan
        # Of waiters that are alike: demands without a set of victims, by a version of the ledger.
        self.no_set: dict[tuple[QueueKey, Starving], tuple[int, list[Amounts]]] = {}
        # The most that a waiter of the pool starves, where that matters.
        self.hungriest = Starving.AGGRESSIVELY_STARVING

    def in_pool(self, pool_id: str) -> None:
        ledger = self.state.ledgers[pool_id]
        if ledger.pool.settings.patience is not Patience.NONE:
            self.hungriest = hungriest(self.state, ledger)
            if self.hungriest is Starving.NON_STARVING:
                return
        covered = Covered(self.state, WithinQuota(self.state) if self.state.tenants else ())
        cursor = Cursor(
            ledger, streams(ledger), lambda stream: self._reach(ledger, stream), covered
        )
        while (candidate := cursor.peek()) is not None:
            waiter = self.state.requests[candidate.request_id]
            stream = candidate.stream
            if not may_take(self.state, ledger, waiter, stream.policy_id) or self._knows(
                ledger, stream, waiter
            ):
                cursor.skip()
                continue
            served = self._serve(waiter)
            if not served and ledger.inventory is not None:
                cursor.skip_stream()  # waiters of one form fit in the same places
            elif not served:
                cursor.skip()

    def _knows(self, ledger: PoolLedger, stream: Stream, waiter: Request) -> bool:
        """Whether no set of victims was found for a waiter that is alike since the last change.
        Where fair shares decide its demand must be the same: a larger one may have a set. What is
        withheld for a waiter is free for it alone.
        """
        demand = stream.queue.demand(waiter.id)
        version, known = self.no_set.get(self._alike(ledger, stream.key, waiter), (-1, []))
        if version != ledger.version:
            return False
        if not _by_price(ledger):
            return demand in known and waiter.id not in ledger.withheld
        return any(
            all(demand.get(key, 0) >= amount for key, amount in less.items()) for less in known
        )

    def _alike(
        self, ledger: PoolLedger, key: QueueKey, waiter: Request
    ) -> tuple[QueueKey, Starving]:
        """The common properties of waiters for which the same holders are legal."""
        if not ledger.starves:
            return key, Starving.NON_STARVING
        return key, hunger(self.state, ledger, waiter, key.policy_id)

    def _no_set(self, offer: Offer, waiter: Request) -> None:
        """Note that there is no set of victims for a waiter, if that holds for those alike."""
        ledger, key = offer.ledger, offer.preemptor.key
        own = any(each == waiter.id for each, _ in self.plan.in_vain)
        if _by_price(ledger) or (ledger.fair and not own and not self._may_later(offer)):
            alike = self._alike(ledger, key, waiter)
            version, known = self.no_set.get(alike, (-1, []))
            if version != ledger.version:
                known = []
            self.no_set[alike] = (ledger.version, [*known, offer.demand])

    def _may_later(self, offer: Offer) -> bool:
        """Whether borrowers still have time to give a waiter nodes back by themselves."""
        return return_grace_end(offer.ledger, offer.preemptor) > self.state.now

    def _beyond(self, ledger: PoolLedger, stream: Stream) -> Amounts:
        """The sum that holders could give back to a stream by amounts."""
        if stream.rights != IN_SHARE or not (found := ledger.takeable_beyond()):
            return {}
        return found if has_reserve_left(ledger, stream.policy_id) else {}

    def _reach(self, ledger: PoolLedger, stream: Stream) -> Room | None:
        """The headroom of a waiter of this stream with every holder gone that it may stop."""
        below, unsafe = self._below(ledger, stream)
        mine = ledger.takeable_inside(stream.policy_id, stream.band(ledger), stream.standing)
        on_its_way = ledger.leaving or ledger.earmarks
        if not (below or unsafe or mine or on_its_way or self._beyond(ledger, stream)) and (
            stream.form is not None or not ledger.withheld
        ):
            return None  # only free capacity is left, which is for granting, also in the next round
        gone = yielding(ledger, stream.key, stream.rights)
        own = headroom(stream.own_bounds(ledger, alone=True, promise=True, gone=gone))
        if own is None or not within(stream.queue.least, own):
            return None
        beyond = self._beyond(ledger, stream)
        for above in ledger.chains[stream.policy_id][1:]:  # its own policy's are below it
            left = _promisable_under(ledger, above, stream.key, stream.standing)
            inside = ledger.takeable_below(stream.standing, above)
            lower(own, _once_left(left, inside, mine, beyond))
        withheld = [each for each in ledger.withheld if each in stream.queue]
        promisable = self._promisable(ledger, stream, stream.queue.oldest or (), withheld)
        room = _once_left(promisable, below, unsafe, mine)
        if room.keys() - own.keys() or not fits(own, room):  # rarely true of reserved keys
            lower(own, _once_left(room, beyond))
        return own

    def _below(self, ledger: PoolLedger, stream: Stream) -> tuple[Amounts, Amounts]:
        """The sum that holders of lower standing could give back to a stream, in two parts. While
        nobody starves aggressively, the first leaves out all holdings within fair shares, and the
        second is those of its own policy that it may stop all the same.
        """
        if not stream.preemptible or not spares_within_share(ledger, self.hungriest):
            return ledger.takeable_below(stream.standing), {}
        unsafe: Amounts = {}
        if stream.band(ledger):
            unsafe = ledger.unsafe_in(stream.policy_id, stream.key.rank, WITHIN_SHARE)
        return ledger.takeable_below(stream.standing, spared=WITHIN_SHARE), unsafe

    def _promisable(
        self, ledger: PoolLedger, stream: Stream, age: tuple[Any, ...], own: Container[str]
    ) -> Room:
        """The capacity that may be promised to a waiter of this stream and age; room withheld for
        `own` is included.
        """
        room = free_to_promise(ledger, stream.standing)
        for mark in own_promises(ledger, stream.key, stream.standing):
            add_to(room, mark.amounts)
        for wanted in self.plan.wanted.get(ledger.pool.id, {}).values():
            if wanted.before(stream.standing, age):
                for key, amount in wanted.amounts.items():
                    room[key] -= amount
        return without_withheld(self.state, ledger, stream, room, own)

    def offers(
        self, waiter: Request, policy: Policy, *, by_amounts: bool = False
    ) -> Iterator[Offer]:
        """The offers of one of its pools to a waiter; none where its own bounds stop it. Where
        home is a place, at home first. With `by_amounts` only the one by amounts, if allowed.
        """
        ledger = self.state.ledgers[policy.pool_id]
        if ledger.pool.quarantine is not None or not may_take(
            self.state, ledger, waiter, policy.id
        ):
            return
        key = ledger.queue_of(policy.id, waiter)
        queue = ledger.queues.get(key)
        if queue is None or waiter.id not in queue:
            return
        demand = queue.demand(waiter.id)
        if not check(demand, own_bounds(ledger, key, alone=True, promise=True)).fits:
            return
        band = ledger.band(key, demand)
        if by_amounts:
            inside = Stream(queue, key, IN_SHARE, ledger.standing(key.rank, IN_SHARE))
            may = inside_reserve(ledger, policy.id, demand)
            if may and not self._is_wanted(ledger, inside, waiter):
                stream = Stream(queue, key, IN_SHARE, LOWEST)  # it cuts no promise
                yield self._offer(waiter, policy, stream, band, (), by_amounts=True)
            return
        for rights, share in levels(ledger, key, demand, band):
            stream = Stream(queue, key, rights, ledger.standing(key.rank, rights))
            if not self._is_wanted(ledger, stream, waiter):
                yield self._offer(waiter, policy, stream, band, share)

    def _is_wanted(self, ledger: PoolLedger, stream: Stream, waiter: Request) -> bool:
        """Whether a waiter has room only until victims that go before it come back: older ones of
        its standing in the pool, or any below the same limit.
        """
        wanted = self.plan.wanted.get(ledger.pool.id, {}).values()
        before = [each for each in wanted if each.before(stream.standing, waiter.age)]
        if not before:
            return False
        demand = stream.queue.demand(waiter.id)
        beside_higher = self._promisable(ledger, stream, (), (waiter.id,))
        beside_all = self._promisable(ledger, stream, waiter.age, (waiter.id,))
        if fits(demand, beside_higher) and not fits(demand, beside_all):
            return True
        for above in ledger.chains[stream.policy_id]:
            left = _promisable_under(ledger, above, stream.key, stream.standing)
            if fits(demand, left):
                for each in before:
                    if above in ledger.chains[each.policy_id]:
                        left = {key: n - each.amounts.get(key, 0) for key, n in left.items()}
                if not fits(demand, left):
                    return True
        return False

    def _offer(
        self,
        waiter: Request,
        policy: Policy,
        stream: Stream,
        band: int,
        share: tuple[Part, ...],
        by_amounts: bool = False,
    ) -> Offer:
        """The offer of a pool to a waiter at the stream's rights, for which `share` must leave."""
        ledger, demand = self.state.ledgers[policy.pool_id], stream.queue.demand(waiter.id)
        under = tuple(_missing_above(ledger, stream.key, demand, stream.standing))
        rights, standing = stream.rights, stream.standing
        preemptor = Preemptor(waiter, stream.key, rights, band, standing, by_amounts)
        if stream.form is not None:
            nowhere: tuple[Footprint | None, tuple[str, ...]] = (None, ())
            where, instead_of = nowhere if under or share else self._place(ledger, preemptor)
            return Offer(
                *(ledger, policy, demand, preemptor, demand, demand),
                *(stream.form, where, under, share, instead_of),
            )
        room = self._promisable(ledger, stream, waiter.age, (waiter.id,))
        short = missing(demand, room)
        whole = {key: amount - min(room[key], 0) for key, amount in demand.items()}
        return Offer(ledger, policy, demand, preemptor, short, whole, under=under, share=share)

    def _place(
        self, ledger: PoolLedger, preemptor: Preemptor
    ) -> tuple[Footprint | None, tuple[str, ...]]:
        """The nodes that could be promised to a waiter without stopping a holder, and the fewest
        owners of promises in its own policy that give way to it.
        """
        where = preemptor.locate(self.state, ledger)
        instead_of: list[str] = []
        if where is None:
            for mark in own_promises(ledger, preemptor.key, preemptor.standing):
                instead_of.append(mark.id)
                where = preemptor.locate(self.state, ledger, instead_of)
                if where is not None:
                    break
        for each in instead_of[:-1] if where is not None else ():
            fewer = [other for other in instead_of if other != each]
            found = preemptor.locate(self.state, ledger, fewer)
            if found is not None:
                where, instead_of = found, fewer
        return where, () if where is None else tuple(instead_of)

    def _serve(self, waiter: Request) -> bool:
        """Promise a waiter its demand in one of its pools; return whether anything was decided.

        Where leaving capacity suffices no holder need be stopped, so all pools are asked for that
        first; except in a pool where only the capacity of victims counts.
        """
        if (waiter.id, ANY) in self.plan.regretted:
            return False
        places = self.state.places(waiter.id)
        offers = [each for policy in places for each in self.offers(waiter, policy)]
        # An exchange needs every victim for room: a larger demand may have a set, and a smaller
        # one none.
        alike = len(places) == 1 and not any(each.share for each in offers)
        if any(not each.counts_free and self._stop(waiter, each, alike) for each in offers):
            return True
        for offer in offers:
            if offer.footprint is not None:
                self._promise(waiter, offer, offer.footprint)
                return True
            if not offer.lacks and not offer.contested:
                self._promise(waiter, offer)
                return True
        if any(self._take(waiter, offer, alike) for offer in offers):
            return True
        owned = [e for each in places for e in self.offers(waiter, each, by_amounts=True)]
        return any(each.lacks and self._stop(waiter, each, unless=offers) for each in owned)

    def _has_set(self, offer: Offer) -> bool:
        """Whether there is, or may be, a set of victims that is legal by standing: now, or once
        holders have had their first seconds or their time to give back.
        """
        state, ledger, preemptor = self.state, offer.ledger, offer.preemptor
        if return_grace_end(ledger, preemptor) > state.now:
            return True
        if first_young(state, ledger, preemptor, offer.missing.keys) is not None:
            return True
        choice = find_victims(state, ledger, preemptor, offer.missing)
        return choice.best is not None or not choice.exhaustive

    def _take(self, waiter: Request, offer: Offer, alike: bool) -> bool:
        """Stop the necessary victims, or take over a promise of lower standing; return whether it
        could.
        """
        if not offer.lacks:
            self._promise(waiter, offer)
            return True
        return offer.counts_free and self._stop(waiter, offer, alike)  # else already tried

    def _stop(
        self, waiter: Request, offer: Offer, alike: bool = False, unless: Iterable[Offer] = ()
    ) -> bool:
        """Stop victims if that is allowed and worth it; return whether it is. No holder is stopped
        if there is a set for one of the offers in `unless`.

        Where waiters are `alike`, no set for one means no set for larger ones.
        """
        barred = self.plan.in_vain
        choice = find_victims(self.state, offer.ledger, offer.preemptor, offer.missing, barred)
        if choice.victims is None:
            self._look_again(offer)
            if choice.best is None and alike:
                self._no_set(offer, waiter)
            return False
        victims = [each.holding for each in choice.victims]
        if starts_by_itself(self.state, offer.ledger, waiter, victims):
            return False
        if any(self._has_set(each) for each in unless):
            return False
        mark, before = self.state.mark(), self.plan.mark()
        if self._preempt(waiter, offer, victims, choice):
            return True
        # The victims' leaving raised a promise above this one, so the new promise did not hold.
        self.state.undo(mark)
        self.plan.undo(before)
        return False

    def _look_again(self, offer: Offer) -> None:
        """Wake the pool when borrowers have had their time to give nodes back."""
        end = return_grace_end(offer.ledger, offer.preemptor)
        if end > self.state.now:
            self.state.wake_by(offer.ledger.pool.id, end)

    def _preempt(
        self, waiter: Request, offer: Offer, victims: list[Holding], choice: Choice
    ) -> bool:
        """Stop these victims and promise the waiter its demand; return whether that holds."""
        ledger = offer.ledger
        reasons = [self._stop_reason(offer, each, victims) for each in victims]
        candidates: list[dict[str, Any]] = []
        if ledger.pool.settings.price is Price.CHECKPOINT:
            candidates = weighed_for(self.state, ledger, offer.preemptor, offer.missing, choice)
        stopped = [each for each in victims if each.id not in self.plan.granted]
        note_stage(self.state, ledger, stopped)
        for victim, reason in zip(victims, reasons, strict=True):
            if victim.id in self.plan.granted:  # in this pass: the grant is undone
                take_back_grant(self.state, self.plan, victim.id, waiter.id)
                continue
            stop(self.state, self.plan, victim, reason, waiter.id)
        if stopped:
            self.plan.decisions.append(
                Preemption(
                    beneficiary_id=waiter.id,
                    pool_id=ledger.pool.id,
                    victims=tuple(victim.id for victim in stopped),
                    reason=_strongest(reasons),
                    cost=choice.cost,
                    weighed=tuple(candidates),
                )
            )
        footprint: Footprint | None = ()
        if ledger.inventory is not None:  # the victims are leaving, so their place is promisable
            footprint, instead_of = self._place(ledger, offer.preemptor)
            offer = offer._replace(instead_of=instead_of)
        return footprint is not None and self._earmark(waiter, offer, footprint)

    def _stop_reason(self, offer: Offer, victim: Holding, victims: list[Holding]) -> Reason:
        code = rule(offer.ledger, victim, offer.preemptor)
        if code is Code.RESERVE_KEPT:
            return _reserve_kept(offer, victim, victims)
        if offer.share and victim.policy_id == offer.preemptor.policy_id:
            code = Code.EXCHANGE
        return stop_reason(self.state, offer.ledger, offer.preemptor, victim, code)

    def _promise(self, waiter: Request, offer: Offer, footprint: Footprint = ()) -> None:
        """Promise a waiter a demand for which no holder has to be stopped."""
        held = self._earmark(waiter, offer, footprint)
        assert held, "the waiter's own promise must hold"

    def _earmark(self, waiter: Request, offer: Offer, footprint: Footprint = ()) -> bool:
        """Promise a waiter its demand; return whether the promise holds."""
        ledger, standing = offer.ledger, offer.preemptor.standing
        for each in offer.instead_of:
            drop(self.state, each)
        for own in own_promises(ledger, offer.preemptor.key, standing):
            if offer.fits_beside:
                break
            drop(self.state, own.id)
        earmark = Earmark(ledger.pool.id, offer.policy.id, self.state.next_index(), footprint)
        # Promised capacity need not be withheld as well.
        self.state.put(replace(waiter, earmark=earmark, withhold=None))
        self.state.emit("earmarked", request_id=waiter.id, pool_id=ledger.pool.id)
        settle(self.state, ledger)
        self.plan.promised.setdefault(ledger.pool.id, {})[waiter.id] = None
        self.plan.again = True  # the victims may free more than was needed
        return self.state.requests[waiter.id].earmark is not None


def tell_weighed(state: State, plan: Plan) -> None:
    """At the end of a pass, where price decides: give the event of a stop the weighed candidates,
    the cost of each, and the reason why cheaper ones were not stopped.
    """
    told = {
        state.allocations[victim].request_id: in_short(state, decision.weighed)
        for decision in plan.decisions
        if isinstance(decision, Preemption) and decision.weighed
        for victim in decision.victims
        if victim in state.allocations
    }
    for at, event in enumerate(state.events if told else ()):
        if event.kind == "preempting" and event.index > plan.began and event.request_id in told:
            data = {**event.data, "weighed": told[event.request_id]}
            state.events[at] = replace(event, data=data)


def levels(
    ledger: PoolLedger, key: QueueKey, demand: Amounts, band: int
) -> Iterator[tuple[int, tuple[Part, ...]]]:
    """The rights at which a waiter may be served, with the amounts that must leave a share for
    them: at home before elsewhere; without an exchange before with one.
    """
    if ledger.homes.decide:
        for rights in ledger.homes.levels(key.policy_id, key.preemptible):
            yield rights, ()
        return
    rights = rights_if_granted(ledger, key.policy_id, demand, key.preemptible, band)
    yield rights, ()
    for higher, share in exchanges(ledger, key, demand, band, rights):
        yield higher, (share,)


def starts_by_itself(
    state: State, ledger: PoolLedger, waiter: Request, victims: list[Holding]
) -> bool:
    """Whether walltimes prove that a waiter starts as soon as with these victims stopped."""
    if not ledger.pool.settings.wait_first or is_immediate(ledger, waiter):
        return False
    start = earliest_start(state, ledger, waiter)
    soon = max((stop_progress_time(state, ledger, each) for each in victims), default=0)
    return start is not None and start.at <= state.now + soon


def _once_left(room: Room, *gone: Amounts) -> Room:
    """A room after these amounts have been given back."""
    for amounts in gone:
        if amounts:
            add_to(room, {key: amounts[key] for key in room if key in amounts})
    return room


def _missing_above(
    ledger: PoolLedger, key: QueueKey, demand: Amounts, standing: Standing
) -> Iterator[tuple[str, Amounts]]:
    """The part of a demand that exceeds each limit above its policy: such a limit is capacity for
    the policies below it.
    """
    for above in ledger.chains[key.policy_id][1:]:
        over = missing(demand, _promisable_under(ledger, above, key, standing))
        if over:
            yield above, over


def _promisable_under(
    ledger: PoolLedger, above: str, key: QueueKey, standing: Standing, own: bool = True
) -> Room:
    """The room under the limit of a policy above for a waiter of this standing; with `own`, its
    own policy's promises that it could take count as room.
    """
    left = limit_room(ledger, above, ledger.used_leaving)
    marks = own_promises(ledger, key, standing) if own else []
    gone = [each.amounts for each in marks]
    return _once_left(left, ledger.promised_below(standing, above), *gone)


def _by_price(ledger: PoolLedger) -> bool:
    return ledger.pool.settings.price is Price.CHECKPOINT


def stop(state: State, plan: Plan, victim: Holding, reason: Reason, taken_for: str) -> None:
    """Ask a holder to stop for a beneficiary; the pass can undo it until its end."""
    standing = state.ledgers[state.allocations[victim.id].pool_id].standing_of(victim.id)
    plan.stopped[victim.id] = Stopped(state.allocations[victim.id], standing)
    request_stop(state, victim.id, reason, taken_for=taken_for)


def stop_reason(
    state: State, ledger: PoolLedger, preemptor: Preemptor, victim: Holding, code: Code
) -> Reason:
    """The reason of a stop, with its beneficiary."""
    holder = ledger.policies[victim.policy_id]
    detail: dict[str, Any] = {
        "pool": ledger.pool.name,
        "policy": holder.name,
        "beneficiary": preemptor.request.id,
    }
    if code in (Code.PRIORITY, Code.HIGHER_CLASS, Code.EXCHANGE):
        detail |= {"rank": preemptor.rank, "victim_rank": victim.rank}
    if ledger.balance is not None:
        own = victim.policy_id == preemptor.policy_id
        group = GROUPS[victim.band] if own else BY_RIGHTS[ledger.rights(victim.id)]
        detail |= {"stage": str(stage_of(state, ledger, preemptor)), "group": str(group)}
    return Reason(code, detail)


def _reserve_kept(offer: Offer, victim: Holding, victims: list[Holding]) -> Reason:
    """The reason of a stop by amounts: without all its victims the policy keeps its reserve of the
    keys that count.
    """
    ledger, policy = offer.ledger, offer.ledger.policies[victim.policy_id]
    held = dict(staying(ledger, policy.id))
    for each in victims:
        if policy.id in ledger.chains[each.policy_id]:
            take_from(held, each.amounts)
    keys = [key for key in ledger.counting if key in victim.amounts]
    reserved = {key: policy.reserved.get(key, 0) for key in keys}
    detail = {
        "pool": ledger.pool.name,
        "policy": policy.name,
        "beneficiary": offer.preemptor.request.id,
        "kept": show({key: held.get(key, 0) for key in keys}),
        "reserved": show(reserved),
    }
    return Reason(Code.RESERVE_KEPT, detail)


def _strongest(reasons: list[Reason]) -> Reason:
    """The rule of a whole set of victims: the first in this ranking that applies to any of them."""
    ranked = (
        *(Code.STARVATION, Code.RECLAIM, Code.RESERVE_KEPT, Code.HIGHER_CLASS),
        *(Code.EXCHANGE, Code.PRIORITY, Code.OWN_POLICY),
    )
    return min(reasons, key=lambda each: ranked.index(each.code))

"""Lets victims that need not stop go on: no holder is stopped in vain (S8).

Victims come back to the queue, so they count as waiters as soon as they are stopped. A victim with
room beside the promises of its standing and above goes on, the most expensive first; promises of
the same pass to others are withdrawn. Where a lower holder could be stopped in its stead, that one
is. So nothing is promised to a waiter that a victim would outrank, and a victim that comes back
finds no holder that it could preempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from cede.engine.ledger.account import (
    Room,
    check,
    fits,
    free_to_promise,
    limit_room,
    limits_room,
    missing,
    own_bounds,
    rights_if_granted,
)
from cede.engine.ledger.admit import eligible_policies
from cede.engine.ledger.exchange import Part
from cede.engine.ledger.ledger import Departing, PoolLedger, alike, known_by
from cede.engine.rights.cover import Holding
from cede.engine.rights.standing import IN_SHARE, Standing
from cede.engine.state.state import State
from cede.engine.steps.earmarks import drop
from cede.engine.steps.preempt import levels, stop, stop_reason
from cede.engine.steps.taken_back import take_back_grant, take_back_stop
from cede.engine.victims.choose import Missing, find_victims, rule
from cede.engine.victims.pricing import price
from cede.engine.victims.protection import Preemptor, may_take, may_take_own
from cede.model.allocation import Allocation
from cede.model.amounts import add_to
from cede.model.copying import replace
from cede.model.plan import Plan, Preemption, Wanted
from cede.model.reason import Code
from cede.model.request import Request
from cede.model.settings import Price, Rank


def let_victims_go(state: State, plan: Plan) -> bool:
    """Let victims go on if nothing is kept for their beneficiary any more: it has started on other
    nodes, or lost its promise. Return whether there were any.
    """
    sparing = _Sparing(state, plan)
    victims: list[str] = []
    for owner_id in state.unearmarked:
        for victim_id in state.untold.get(owner_id, ()):
            pool_id = state.allocations[victim_id].pool_id
            if sparing.has_hope(state.ledgers[pool_id], victim_id):
                victims.append(victim_id)
    state.unearmarked.clear()
    sparing.look_at(victims)
    return sparing.spare()


def spare(state: State, plan: Plan) -> bool:
    """Let victims go on that have room, where this pass has made a promise, room has come from
    outside, or a promise fell below them; return whether there were any. Where only the capacity
    of victims counts, they must stop in any case.
    """
    sparing = _Sparing(state, plan)
    roomier = sorted(plan.promised.keys() | set(state.roomier.values()))
    pools = [each for each in roomier if state.pools[each].settings.count_free]
    victims: dict[str, None] = {}
    for pool_id in pools:
        ledger = state.ledgers[pool_id]
        if ledger.inventory is None or pool_id in state.roomier:
            sparing.look_at_kinds(ledger)
            continue
        for where, pool in state.roomier.items():  # a node's
            if pool == pool_id and (spot := ledger.inventory.spots.get(where)) is not None:
                victims |= {e: None for e, (held, _) in spot.holdings.items() if held.comes_back}
    victims |= sparing.risen(pools)
    state.roomier.clear()
    for victim_id in plan.stopped:
        victim = state.allocations[victim_id]
        # Of victims that are alike and stop for an owner of a promise, one stands for all.
        alone = victim.members or not _has_use(state, victim.taken_for)
        if alone and victim.pool_id in pools:
            victims[victim_id] = None
    sparing.look_at(victims)
    went_on = sparing.spare()
    return sparing.keep_elsewhere(pools) or went_on


def _pushed(state: State, plan: Plan) -> dict[str, set[str]]:
    """By pool: policies whose promises a grant of this pass may have pushed out of their share.
    Non-preemptible work fills the share of its policy first, and any work the shares above it.
    """
    found: dict[str, set[str]] = {}
    for each in map(state.allocations.__getitem__, plan.granted):
        chain = state.ledgers[each.pool_id].chains[each.policy_id]
        if fallen := chain[1:] if each.preemptible else chain:
            found.setdefault(each.pool_id, set()).update(fallen)
    return found


class _Turn(NamedTuple):
    """The next victim of a line, and the rest of the line."""

    key: tuple[int, int, float, int]  # highest first, then most expensive, then oldest
    number: int  # orders turns that are otherwise equal
    victim_id: str
    others: Iterator[str]


class _Sparing:
    """One examination of some victims, in lines of victims that are alike."""

    def __init__(self, state: State, plan: Plan) -> None:
        self.state, self.plan = state, plan
        # The standing of victims once they are back, by kind.
        self._standings: dict[tuple[Any, ...], Standing] = {}
        self._turns: list[_Turn] = []
        self._number = count()
        # By pool that is examined for fallen promises only: the policies of these promises.
        self._pushed: dict[str, set[str]] = {}

    def has_hope(self, ledger: PoolLedger, victim_id: str) -> bool:
        """Whether there could be room for victims of this kind: cheap, with no false negatives."""
        holding = ledger.holdings[victim_id]
        # Promises of this pass, and to lower classes of its policy, may be dropped too.
        if self.plan.stopped or ledger.homes.decide or ledger.pool.settings.rank is Rank.CLASS:
            return True
        back = self._standing(ledger, holding)
        # Promises to younger waiters of its standing may be dropped as well.
        bound = (back[0], back[1] + 1) if ledger.keeps_order else back
        room = free_to_promise(ledger, bound)
        if fits(holding.amounts, room):
            return True
        if ledger.inventory is not None:
            return False
        add_to(room, ledger.takeable_below(back))
        return fits(holding.amounts, room)

    def look_at(self, victims: Iterable[str]) -> None:
        """Line these victims up."""
        lines: dict[Any, list[str]] = {}
        for each in victims:
            ledger = self.state.ledgers[self.state.allocations[each].pool_id]
            lines.setdefault(known_by(ledger.holdings[each]), []).append(each)
        for line in lines.values():
            self._next(iter(sorted(line, key=self._key)))

    def risen(self, besides: Collection[str]) -> dict[str, None]:
        """Victims in other counted pools, where a grant may have left a promise below them."""
        found: dict[str, None] = {}
        self._pushed = _pushed(self.state, self.plan)
        for pool_id in besides:
            self._pushed.pop(pool_id, None)
        for pool_id in self._pushed:
            ledger = self.state.ledgers[pool_id]
            if ledger.inventory is not None or not ledger.earmarks:
                continue
            for line in ledger.departing.values():
                if self.has_hope(ledger, line[0][1]):
                    found |= {each: None for _, each in line}
        return found

    def look_at_kinds(self, ledger: PoolLedger) -> None:
        """Line up all victims that are leaving a pool."""
        by_place = ledger.inventory is not None or ledger.homes.decide
        by_price = ledger.pool.settings.price is Price.CHECKPOINT
        for kind, line in list(ledger.departing.items()):
            if not self.has_hope(ledger, line[0][1]):
                continue
            if by_place or by_price:
                self.look_at([victim_id for _, victim_id in line])
            else:
                self._next(_oldest_first(ledger, kind))

    def spare(self) -> bool:
        """Let victims with room go on; return whether there were any. If the first of a line does
        not fit, none of the line does until another victim has gone on.
        """
        went_on = False
        refused: list[Iterator[str]] = []
        while self._turns:
            turn = heappop(self._turns)
            victim = self.state.allocations[turn.victim_id]
            ledger = self.state.ledgers[victim.pool_id]
            if not self._comes_back(turn.victim_id):  # handled already, in another line
                self._next(turn.others)
            elif self._goes_on(ledger, victim, ledger.holdings[victim.id]):
                went_on = True
                self._standings.clear()
                for each in (turn.others, *refused):
                    self._next(each)
                refused.clear()
            elif victim.id in self.plan.wanted.get(victim.pool_id, ()):
                self._next(turn.others)
            else:
                refused.append(turn.others)
        return went_on

    def _next(self, line: Iterator[str]) -> None:
        """Schedule the next victim of a line that would wait again."""
        for victim_id in line:
            if self._comes_back(victim_id):
                turn = _Turn(self._key(victim_id), next(self._number), victim_id, line)
                heappush(self._turns, turn)
                return

    def _comes_back(self, victim_id: str) -> bool:
        victim = self.state.allocations[victim_id]
        holding = self.state.ledgers[victim.pool_id].holdings[victim_id]
        return holding.comes_back and not self.state.requests[victim.request_id].cancelled

    def _key(self, victim_id: str) -> tuple[int, int, float, int]:
        victim = self.state.allocations[victim_id]
        ledger = self.state.ledgers[victim.pool_id]
        holding = ledger.holdings[victim.id]
        first, second = self._standing(ledger, holding)
        by_price = ledger.pool.settings.price is Price.CHECKPOINT
        worth = price(self.state, ledger, holding).total if by_price else 0
        return (-first, -second, -worth, victim.index)

    def _standing(self, ledger: PoolLedger, holding: Holding) -> Standing:
        """The standing of a victim once it is back in the queue."""
        if ledger.homes.decide:
            return ledger.standing_of(holding.id)
        kind = alike(holding)
        known = self._standings.get(kind)
        if known is None:
            policy_id, amounts = holding.policy_id, holding.amounts
            rights = rights_if_granted(ledger, policy_id, amounts, holding.preemptible)
            known = self._standings[kind] = ledger.standing(holding.rank, rights)
        return known

    def _goes_on(self, ledger: PoolLedger, victim: Allocation, holding: Holding) -> bool:
        """Let a victim go on if there is room and no promise that stays loses by it; else keep its
        demand if it comes back above promises. Return whether it goes on, or that is new.
        """
        below = self._below(ledger, victim, holding)
        room = self._has_room_again(ledger, holding)
        # A victim of this pass has not been told yet.
        if victim.id not in self.plan.stopped and not victim.may_go_on:
            if below and room and ledger.inventory is None:
                self._want(ledger, holding)  # other victims that come back may need more than this
            return bool(below) and not room and self._is_wanted(ledger, holding, below)
        if not room and not below and not self._may_exchange(ledger, holding, below):
            return False
        state, plan = self.state, self.plan
        mark, before = state.mark(), plan.mark()
        taken_for, is_new = victim.taken_for, victim.id in plan.stopped
        if self._make_room(ledger, victim, holding, below) and self._put_back(ledger, victim):
            assert taken_for is not None
            # A victim of an earlier pass may be stopped again: its promise ended for another cause.
            if is_new and not _has_use(state, taken_for):
                plan.in_vain.add((taken_for, known_by(holding)))
            return True
        state.undo(mark)
        plan.undo(before)
        # It comes back in any case, above the owners of promises to its room.
        return bool(below) and not is_new and self._is_wanted(ledger, holding, below)

    def _is_wanted(self, ledger: PoolLedger, holding: Holding, below: list[Holding]) -> bool:
        """Keep room for a victim that must stop and comes back above the owners of the promises to
        it; return whether that is new.
        """
        if ledger.inventory is not None:
            return False
        mark = self.state.mark()
        # If dropped promises are not enough, it may stop others for the rest.
        if self._give_up(ledger, holding, below) or self._may_exchange(ledger, holding):
            known = holding.id in self.plan.wanted.get(ledger.pool.id, ())
            self._want(ledger, holding)
            return not known or self.state.mark() != mark
        self.state.undo(mark)
        return False

    def _give_up(self, ledger: PoolLedger, holding: Holding, below: list[Holding]) -> bool:
        """Drop promises until there is room for a victim; return whether there is."""
        for each in below:
            if self._has_room_again(ledger, holding):
                return True
            if ledger.inventory is not None or self._is_in_the_way(ledger, each, holding):
                drop(self.state, each.id)
        return self._has_room_again(ledger, holding)

    def _is_in_the_way(self, ledger: PoolLedger, promise: Holding, holding: Holding) -> bool:
        """Whether a promise holds a key that a victim of a counted pool lacks: in the pool, or
        below a limit that binds both.
        """
        short = missing(holding.amounts, self._unwanted(ledger, holding)).keys()
        if promise.amounts.keys() & short:
            return True
        for above in ledger.chains[holding.policy_id]:
            left = limit_room(ledger, above, ledger.used_leaving)
            short = missing(holding.amounts, left).keys()
            if above in ledger.chains[promise.policy_id] and promise.amounts.keys() & short:
                return True
        return False

    def _want(self, ledger: PoolLedger, holding: Holding) -> None:
        """Keep room for a victim that comes back; waiters below it cannot have that room."""
        age = self._request(holding).age if ledger.keeps_order else None
        wanted = self.plan.wanted.setdefault(ledger.pool.id, {})
        back = self._standing(ledger, holding)
        wanted[holding.id] = Wanted(holding.policy_id, holding.amounts, back, age)

    def keep_elsewhere(self, pools: Collection[str]) -> bool:
        """Keep room for victims of counted pools that may come back in another pool, above the
        owners of promises there: in these pools for all victims, elsewhere for those of this pass.
        Return whether promises were dropped.
        """
        state = self.state
        dropped = False
        for ledger in state.ledgers.values() if pools or self.plan.stopped else ():
            if ledger.inventory is not None:
                continue
            for line in list(ledger.departing.values()):
                subject = state.requests[state.allocations[line[0][1]].request_id].subject
                if len(state.policies_of(subject)) < 2:
                    continue
                for _, victim_id in list(line):
                    if self._comes_back(victim_id):
                        new = victim_id in self.plan.stopped
                        among = state.ledgers if new else pools
                        dropped |= self._is_wanted_elsewhere(ledger, victim_id, among)
        return dropped

    def _is_wanted_elsewhere(
        self, ledger: PoolLedger, victim_id: str, among: Collection[str], stops: bool = True
    ) -> bool:
        """Keep room in one of these pools for a victim that will have none in its own. If it may
        stop holders there, which come back in their turn, keep room for those.
        """
        state, holding = self.state, ledger.holdings[victim_id]
        if stops and self._has_room_again(ledger, holding):
            return False  # it goes back where it was
        request = self._request(holding)
        for policy in eligible_policies(state, request):
            other = state.ledgers[policy.pool_id]
            if other is ledger or other.inventory is not None or other.pool.id not in among:
                continue
            key = other.queue_of(policy.id, request)
            amounts = other.pool.metered(request.amounts)
            there = replace(holding, policy_id=policy.id, amounts=amounts, rank=key.rank)
            if not check(amounts, own_bounds(other, key, alone=True, promise=True)).fits:
                continue
            mark = state.mark()
            below = _in_line(other, _outranked(other, there, self._standing(other, there)))
            if self._give_up(other, there, below):
                self._want(other, there)
                return state.mark() != mark
            state.undo(mark)
            found = self._others_to_stop(other, there) if stops else None
            if found is not None:
                dropped = False
                for each in found[1]:
                    dropped |= self._is_wanted_elsewhere(other, each.id, among, stops=False)
                return dropped
        return False

    def _has_room_again(self, ledger: PoolLedger, holding: Holding) -> bool:
        """Whether a victim's capacity is neither promised nor kept for other returning victims."""
        if not _has_room_again(ledger, holding):
            return False
        if not self.plan.wanted.get(ledger.pool.id) or self._stopped_for_nothing(ledger, holding):
            return True
        return fits(holding.amounts, self._unwanted(ledger, holding))

    def _stopped_for_nothing(self, ledger: PoolLedger, holding: Holding) -> bool:
        """Whether a victim of this pass stops for a beneficiary that did not get the room: there
        was room before, and other victims that come back have rights only because it left.
        """
        victim = self.state.allocations[holding.id]
        new = victim.id in self.plan.stopped and victim.pool_id == ledger.pool.id
        return new and not _has_use(self.state, victim.taken_for)

    def _unwanted(self, ledger: PoolLedger, holding: Holding) -> Room:
        """The capacity that is neither promised nor wanted by another victim that comes back
        before a promise.
        """
        room = free_to_promise(ledger)
        owed = [
            ledger.standing(rank, rights)
            for (_, rank, rights), owners in ledger.owed.items()
            if owners
        ]
        for other, wanted in self.plan.wanted.get(ledger.pool.id, {}).items():
            if other != holding.id and any(each <= wanted.standing for each in owed):
                for key, amount in wanted.amounts.items():
                    room[key] -= amount
        return room

    def _below(self, ledger: PoolLedger, victim: Allocation, holding: Holding) -> list[Holding]:
        """Promises that may be dropped for a victim, the lowest and newest first: those to owners
        that it outranks; of this pass, those to younger owners of its standing if an earlier pass
        stopped it; and if its beneficiary's promise is gone, those to owners that may not stop it.
        """
        if not ledger.earmarks:
            return []
        back = self._standing(ledger, holding)
        found = _outranked(ledger, holding, back)
        fallen = self._pushed.get(ledger.pool.id)
        if fallen is not None:
            chains = {each: ledger.chains[ledger.earmarks[each].policy_id] for each in found}
            found = {each: None for each in found if not fallen.isdisjoint(chains[each])}
        if victim.id not in self.plan.stopped and ledger.keeps_order:
            found |= dict.fromkeys(self._younger(ledger, holding, back))
        stopped = self.plan.stopped.get(victim.id)
        if stopped is not None and not _has_use(self.state, victim.taken_for):
            bound = max(back, stopped.standing)
            for owner_id in self.plan.promised.get(ledger.pool.id, ()):
                promise = ledger.earmarks.get(owner_id)
                if promise is None or not self._is_new(promise):
                    continue
                if ledger.standing_of(owner_id) <= bound:
                    found[owner_id] = None
        return _in_line(ledger, found)

    def _younger(self, ledger: PoolLedger, holding: Holding, back: Standing) -> Iterator[str]:
        """Owners of promises of this pass that a victim comes back before by age; none if a limit
        keeps the victim waiting.
        """
        limits = limits_room(ledger, ledger.chains[holding.policy_id], ledger.used_leaving)
        if not fits(holding.amounts, limits):
            return
        age = self._request(holding).age
        for owner_id in self.plan.promised.get(ledger.pool.id, ()):
            promise = ledger.earmarks.get(owner_id)
            if promise is None or not self._is_new(promise):
                continue
            # Non-preemptible work of its own policy goes before it at any age.
            own = promise.policy_id == holding.policy_id and not promise.preemptible
            younger = age < self.state.requests[owner_id].age
            if younger and not own and ledger.standing_of(owner_id) == back:
                yield owner_id

    def _request(self, holding: Holding) -> Request:
        return self.state.requests[self.state.allocations[holding.id].request_id]

    def _is_new(self, promise: Holding) -> bool:
        """Whether a promise was made by this pass."""
        earmark = self.state.requests[promise.id].earmark
        return earmark is not None and earmark.index > self.plan.began

    def _make_room(
        self, ledger: PoolLedger, victim: Allocation, holding: Holding, below: list[Holding]
    ) -> bool:
        """Drop promises below a victim; if that is not enough, stop others in its stead."""
        if self._give_up(ledger, holding, below):
            return True
        return self._exchange(ledger, victim, holding)

    def _put_back(self, ledger: PoolLedger, victim: Allocation) -> bool:
        """Let a victim go on at its place in its share, or at the end of the share if a promise
        would lose by that.
        """
        kept = self._rights_of_owners(ledger)
        for last in (False, True):
            mark, before = self.state.mark(), self.plan.mark()
            take_back_stop(self.state, self.plan, victim.id, last=last)
            if self._rights_of_owners(ledger) == kept:  # one more holder in a share raises none
                return True
            self.state.undo(mark)
            self.plan.undo(before)
        return False

    def _rights_of_owners(self, ledger: PoolLedger) -> Counter[tuple[str, int, int]]:
        """The number of promises of each kind, kept by this pass or still to be kept."""
        found = Counter({kind: len(owners) for kind, owners in ledger.owed.items() if len(owners)})
        for allocation_id, before in self.plan.granted.items():
            held = ledger.holdings.get(allocation_id)
            if held is not None and before.earmark is not None:
                found[held.policy_id, held.rank, ledger.rights(held.id)] += 1
        return found

    # Others in its stead ----------------------------------------------------------------------

    def _may_exchange(
        self, ledger: PoolLedger, holding: Holding, below: Iterable[Holding] = ()
    ) -> bool:
        """Whether the holders and promises below a victim could be enough; never in a pool of
        nodes.
        """
        if ledger.inventory is not None:
            return False
        short = missing(holding.amounts, free_to_promise(ledger))
        could = dict(ledger.takeable_below(self._standing(ledger, holding)))
        if ledger.pool.settings.rank is Rank.CLASS:  # an exchange gives it a higher standing
            key = ledger.queue_of(holding.policy_id, self._request(holding))
            could = dict(ledger.takeable_below(ledger.standing(key.rank, IN_SHARE)))
        for each in below:
            add_to(could, each.amounts)
        return all(could.get(key, 0) >= amount for key, amount in short.items())

    def _exchange(self, ledger: PoolLedger, victim: Allocation, holding: Holding) -> bool:
        """Stop the holders that a victim would stop once it is back, in its stead: for its
        beneficiary or, if that may not stop them, for the victim.
        """
        found = self._others_to_stop(ledger, holding)
        if found is None:
            return False
        back, others, share = found
        self._stop(ledger, self._preemptor_of(ledger, victim, back, others), others, share)
        return True

    def _others_to_stop(
        self, ledger: PoolLedger, holding: Holding
    ) -> tuple[Preemptor, list[Holding], tuple[Part, ...]] | None:
        """The victim as a preemptor once it is back, the holders that it would stop, and the part
        of its share that they leave.
        """
        request = self._request(holding)
        may = may_take(self.state, ledger, request, holding.policy_id)
        if not may or not self._may_exchange(ledger, holding):
            return None
        key = ledger.queue_of(holding.policy_id, request)
        band = ledger.band(key, holding.amounts)
        short = missing(holding.amounts, free_to_promise(ledger))
        for rights, share in levels(ledger, key, holding.amounts, band):
            back = Preemptor(request, key, rights, band, ledger.standing(key.rank, rights))
            over = tuple(_limits_over(ledger, holding))
            short_of, barred = Missing(short, over, share), self.plan.regretted
            choice = find_victims(self.state, ledger, back, short_of, barred)
            if choice.victims:
                return back, [each.holding for each in choice.victims], share
        return None

    def _preemptor_of(
        self, ledger: PoolLedger, victim: Allocation, back: Preemptor, others: list[Holding]
    ) -> Preemptor:
        if victim.taken_for not in ledger.earmarks:
            return back
        owner = self._owner(ledger, victim.taken_for)

        def legal(each: Holding) -> bool:
            if each.policy_id == owner.policy_id:
                return may_take_own(self.state, ledger, owner, each)
            return ledger.standing_of(each.id) < owner.standing

        return owner if all(map(legal, others)) else back

    def _owner(self, ledger: PoolLedger, owner_id: str) -> Preemptor:
        """The owner of a promise as a preemptor."""
        mark, request = ledger.earmarks[owner_id], self.state.requests[owner_id]
        key = ledger.queue_of(mark.policy_id, request)
        rights, standing = ledger.rights(owner_id), ledger.standing_of(owner_id)
        return Preemptor(request, key, rights, mark.band, standing)

    def _stop(
        self, ledger: PoolLedger, owner: Preemptor, others: list[Holding], share: tuple[Part, ...]
    ) -> None:
        state, plan = self.state, self.plan
        stopped = []
        for each in others:
            if each.id in plan.granted:
                take_back_grant(state, plan, each.id, owner.request.id)
                continue
            code = rule(ledger, each, owner)
            if share and each.policy_id == owner.policy_id:
                code = Code.EXCHANGE
            stop(state, plan, each, stop_reason(state, ledger, owner, each, code), owner.request.id)
            stopped.append(each.id)
        if stopped:
            first = state.allocations[stopped[0]].reason
            assert first is not None
            decision = Preemption(owner.request.id, ledger.pool.id, tuple(stopped), first)
            plan.decisions.append(decision)


def _oldest_first(ledger: PoolLedger, kind: Departing) -> Iterator[str]:
    """The leaving victims of one kind, oldest first, also while some of them go on."""
    last = (-1, "")
    while (line := ledger.departing.get(kind)) is not None:
        at = line.bisect_right(last)
        if at == len(line):
            return
        last = line[at]
        yield last[1]


def _outranked(ledger: PoolLedger, holding: Holding, back: Standing) -> dict[str, None]:
    """Owners of promises below a victim that comes back with a standing."""
    found: dict[str, None] = {}
    for (policy_id, rank, rights), owners in ledger.owed.items():
        # In its own policy a lower class has its rights only until the victim is back.
        own = policy_id == holding.policy_id and rank < holding.rank
        if own or ledger.standing(rank, rights) < back:
            found |= dict.fromkeys(owners)
    return found


def _in_line(ledger: PoolLedger, owners: Iterable[str]) -> list[Holding]:
    """Promises in the order in which they are dropped: the lowest and newest first."""
    return sorted(
        (ledger.earmarks[each] for each in owners),
        key=lambda each: (*ledger.last_served(each), -each.index, each.id),
    )


def _limits_over(ledger: PoolLedger, holding: Holding) -> Iterator[Part]:
    """The amounts by which a victim exceeds the limits of its policy and those above."""
    for above in ledger.chains[holding.policy_id]:
        if over := missing(holding.amounts, limit_room(ledger, above, ledger.used_leaving)):
            yield above, over


def _has_room_again(ledger: PoolLedger, holding: Holding) -> bool:
    """Whether the capacity of a victim is not promised."""
    inventory = ledger.inventory
    # The room that the limit leaves without it may be promised to others of its policy, too.
    chain = ledger.chains[holding.policy_id]
    if not fits(holding.amounts, limits_room(ledger, chain, ledger.used_leaving)):
        return False
    if inventory is None:
        return fits(holding.amounts, free_to_promise(ledger))
    need = inventory.room(holding.each)
    return all(
        tasks * amount <= left
        for node_id, tasks in holding.footprint
        for amount, left in zip(need, inventory.spots[node_id].promise[0], strict=True)
    )


def _has_use(state: State, owner_id: str | None) -> bool:
    """Whether a beneficiary has a promise, or holds and is not leaving."""
    owner = state.requests.get(owner_id or "")
    if owner is None:
        return False
    held = state.allocation_of(owner.id)
    return owner.earmark is not None if held is None else not held.leaving


# The beneficiary of a stop --------------------------------------------------------------------


def name_owners(state: State, plan: Plan) -> None:
    """Give victims whose beneficiary lost its promise in this pass a new one: the highest owner of
    a promise above them.
    """
    for victim_id, stopped in plan.stopped.items():
        victim = state.allocations[victim_id]
        if _has_use(state, victim.taken_for):
            continue
        sparing, ledger = _Sparing(state, plan), state.ledgers[victim.pool_id]
        above = [e for e in ledger.earmarks if ledger.standing_of(e) > stopped.standing]
        if not above:
            continue
        best = sparing._owner(ledger, max(above, key=lambda e: (ledger.standing_of(e), e)))
        holding = ledger.holdings[victim_id]
        code = rule(ledger, holding, best)
        reason = stop_reason(state, ledger, best, holding, code)
        state.put(replace(victim, taken_for=best.request.id, reason=reason))
        request = state.requests[victim.request_id]
        state.put(replace(request, reason=reason))
        plan.took_back = True
        plan.decisions.append(Preemption(best.request.id, ledger.pool.id, (victim_id,), reason))

"""The holders that must stop so that a waiter starts: the lowest legal ones, only as many as are
needed, or none.

Holders are considered from the lowest rights up; those of higher rights only if the lower ones are
not enough. Within equal rights the pool's price decides: the newest, because it loses the least
work; the fewest, and of equally few the newest; or the cost of stopping each. Where the pool stops
the newest and reserves are kept by amounts, some holders are excluded, so there the fewest stop.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from functools import partial
from heapq import merge
from itertools import groupby
from math import inf
from typing import NamedTuple

from cede.engine.ledger.exchange import Part
from cede.engine.ledger.ledger import Place, PoolLedger, known_by
from cede.engine.rights.cover import Holding
from cede.engine.rights.standing import BORROWED, IN_SHARE, WITHIN_SHARE, standing
from cede.engine.shares.publish import hunger
from cede.engine.state.state import State
from cede.engine.victims.amounts import Kept, legal_by_amounts
from cede.engine.victims.candidates import Candidate
from cede.engine.victims.cheapest import Choice, cheapest
from cede.engine.victims.goals import Clearing, Fairness, Goal, Shortage, all_needed
from cede.engine.victims.nearness import Paid, nearest
from cede.engine.victims.pricing import candidate, search, value
from cede.engine.victims.protection import (
    Preemptor,
    may_take_own,
    spared,
    spares_within_share,
)
from cede.model.amounts import Amounts
from cede.model.plan import ANY, Barred
from cede.model.reason import Code
from cede.model.settings import Price, Rank, VictimOrder
from cede.model.shape import Form

# Rights, from the lowest up.
_LEVELS = range(BORROWED, IN_SHARE + 1)


class Missing(NamedTuple):
    """The amounts that a waiter misses: of the pool, of the limits above its policy (capacity for
    those below), and of shares that must give it its rights; in a pool of nodes, of places for
    tasks of this form.
    """

    short: Amounts
    under: tuple[Part, ...] = ()
    share: tuple[Part, ...] = ()
    form: Form | None = None

    @property
    def keys(self) -> dict[str, None]:
        found = dict.fromkeys(self.short)
        for _, amounts in (*self.under, *self.share):
            found |= dict.fromkeys(amounts)
        return found


def find_victims(
    state: State,
    ledger: PoolLedger,
    preemptor: Preemptor,
    missing: Missing,
    barred: Container[Barred] = (),
) -> Choice:
    """The holders to stop so that nothing is missing, if there is a legal set without the barred
    ones.
    """
    goals = goals_of(state, ledger, preemptor, missing)
    legal: Iterable[tuple[int, Holding]] = legal_for(state, ledger, preemptor, missing.keys)
    if barred:
        waiter = preemptor.request.id
        legal = [
            each
            for each in legal
            if (waiter, known_by(each[1])) not in barred and (ANY, each[1].id) not in barred
        ]
    settings = ledger.pool.settings
    if settings.price is Price.NEWEST and not preemptor.by_amounts:
        holders: Iterable[Holding] = (holding for _, holding in legal)
        if missing.share:  # an exchange: holders of its own policy give it its rights, so first
            holders = sorted(holders, key=lambda each: each.policy_id != preemptor.policy_id)
        found = choose(goals, holders)
        if found is None or 0 < settings.max_victims < len(found):
            return Choice(None, inf, inf, exhaustive=True)
        return Choice(
            tuple([Candidate(each, 0, each.rank, 0) for each in found]),
            len(found),
            inf,
            exhaustive=True,
        )
    form, inventory = missing.form, ledger.inventory
    if form is None or inventory is None or form.tasks == 1:
        return weigh(state, ledger, preemptor, goals, legal)
    candidates = list(legal)

    def below(path: str) -> Choice:
        near = goals_of(state, ledger, preemptor, missing, path)
        return weigh(state, ledger, preemptor, near, candidates)

    choice = weigh(state, ledger, preemptor, goals, candidates)
    return nearest(inventory, form, choice, below, partial(_paid, ledger))


def _paid(ledger: PoolLedger, choice: Choice) -> Paid:
    """The numbers by which sets of victims are compared before their nodes."""
    victims = choice.victims or ()
    by_price = ledger.pool.settings.victim_order is VictimOrder.PRICE
    steps = [(ledger.rights(each.holding.id), 0 if by_price else each.rank) for each in victims]
    return (*max(steps), choice.cost, max(each.rank for each in victims), len(victims))


def goals_of(
    state: State, ledger: PoolLedger, preemptor: Preemptor, missing: Missing, below: str = ""
) -> list[Goal]:
    """The goals that together mean that nothing is missing; on all nodes, or on those of topology
    groups below a path.
    """
    goals: list[Goal] = [Shortage(dict(amounts), ledger, above) for above, amounts in missing.under]
    goals += [Shortage(dict(part), ledger, pid, rights=True) for pid, part in missing.share]
    if missing.form is not None:
        view = preemptor.site(state, ledger)
        count_free = ledger.pool.settings.count_free
        goals += [Clearing(view, each, count_free, below) for each in missing.form.by_folder]
    else:
        goals.append(Shortage(dict(missing.short)))
    if ledger.balance is not None:  # last: it only judges sets that make room
        demand = ledger.pool.metered(preemptor.request.amounts)
        goals.append(Fairness(ledger.balance, preemptor.policy_id, demand, ledger.counting))
    if preemptor.by_amounts:
        goals.append(Kept(ledger, preemptor.policy_id))
    return goals


def weigh(
    state: State,
    ledger: PoolLedger,
    preemptor: Preemptor,
    goals: list[Goal],
    legal: Iterable[tuple[int, Holding]],
) -> Choice:
    """The cheapest set that meets all goals; with no higher rights than necessary, nor a higher
    rank where rank goes before price.
    """
    settings = ledger.pool.settings
    bound = value(ledger, preemptor.request)
    by_price = settings.victim_order is VictimOrder.PRICE

    def step(each: tuple[int, Holding]) -> tuple[int, int]:
        return (each[0], 0 if by_price else each[1].rank)

    candidates: list[Candidate] = []
    choice = Choice(None, inf, bound, exhaustive=True)
    for _, level in groupby(sorted(legal, key=step), key=step):
        candidates += [_candidate(state, ledger, each) for _, each in level]
        choice = cheapest(candidates, goals, search(ledger, len(candidates)), bound)
        if choice.victims is not None:
            break
    return choice


def _candidate(state: State, ledger: PoolLedger, holding: Holding) -> Candidate:
    if ledger.pool.settings.price is not Price.CHECKPOINT:
        return Candidate(holding, 0, holding.rank, 0)
    return candidate(state, ledger, holding)


def choose(goals: list[Goal], legal: Iterable[Holding]) -> list[Holding] | None:
    """The first of these holders that together meet all goals, without those not needed."""
    chosen: list[Holding] = []
    for holding in legal:
        if _helps(goals, holding):
            chosen.append(holding)
            for goal in goals:
                goal.take_away(holding, 1)
            if _all_met(goals):
                kept = _give_back(chosen, goals)
                return kept if all_needed(goals, kept) else None
    return None


def _helps(goals: list[Goal], holding: Holding) -> bool:
    """Whether some goal wants a holder, and none bars it."""
    wanted = False
    for goal in goals:
        wanted = wanted or goal.wants(holding)
        if goal.bars(holding):
            return False
    return wanted


def _all_met(goals: list[Goal]) -> bool:
    for goal in goals:  # noqa: SIM110 - asked for every victim
        if not goal.met:
            return False
    return True


def _give_back(chosen: list[Holding], goals: list[Goal]) -> list[Holding]:
    """Drop holders that are not needed, the highest and oldest first; the last chosen is needed, as
    without it a goal was not met.
    """
    kept = list(chosen)
    for holding in reversed(chosen[:-1]):
        for goal in goals:
            goal.take_away(holding, -1)
        if _all_met(goals):
            kept.remove(holding)
        else:
            for goal in goals:
                goal.take_away(holding, 1)
    return kept


def legal_for(
    state: State, ledger: PoolLedger, preemptor: Preemptor, keys: Iterable[str]
) -> Iterator[tuple[int, Holding]]:
    """Holders of a missing key that this waiter may stop, with their rights, in the order of
    victims.

    In its own policy it may stop holders of a lower class. Of its own rank there, non-preemptible
    work may stop preemptible holders, and any work those that are less safe in their task group,
    after borrowed holdings of others. Equals never preempt each other.
    """
    if preemptor.by_amounts:
        places = (each for level in _LEVELS for each in _places(ledger, level, keys))
        holders = (ledger.holdings[each[3]] for each in places)
        yield from legal_by_amounts(state, ledger, preemptor, holders)
        return
    precedence = ledger.pool.settings.precedence
    for level in _LEVELS:
        if level == WITHIN_SHARE and _is_closed(state, ledger, preemptor):
            continue
        mine = []
        for place in _places(ledger, level, keys):
            holding = ledger.holdings[place[3]]
            if holding.policy_id == preemptor.policy_id:
                if may_take_own(state, ledger, preemptor, holding):
                    mine.append(holding)
            elif not standing(level, place[1], precedence) < preemptor.standing:
                if preemptor.request.preemptible and not ledger.fair:
                    break  # ranks only rise from here, and it may stop none of its own policy
            elif spared(state, ledger, preemptor, holding, level) is None:
                yield level, holding
        yield from ((level, each) for each in mine)


def _is_closed(state: State, ledger: PoolLedger, preemptor: Preemptor) -> bool:
    """Whether a waiter may stop nobody within a fair share, of other policies or of its own."""
    hungry = hunger(state, ledger, preemptor.request, preemptor.policy_id)
    if not spares_within_share(ledger, hungry) or not preemptor.request.preemptible:
        return False
    own = ledger.unsafe_in(preemptor.policy_id, preemptor.rank, WITHIN_SHARE)
    return not (preemptor.band and any(own.values()))


def _places(ledger: PoolLedger, level: int, keys: Iterable[str]) -> Iterator[Place]:
    """Holders of a missing key, of one level of rights, in order and each once."""
    first, beyond = (level, -1, 0, ""), (level + 1, -1, 0, "")
    found = [ledger.takeable[key].irange(first, beyond) for key in keys if key in ledger.takeable]
    if len(found) == 1:
        return found[0]
    return (place for place, _ in groupby(merge(*found)))


def rule(ledger: PoolLedger, holding: Holding, preemptor: Preemptor) -> Code:
    """The rule that makes stopping this holder legal for this waiter."""
    if preemptor.by_amounts:
        return Code.RESERVE_KEPT
    inside = holding.policy_id == preemptor.policy_id
    if inside and holding.rank == preemptor.rank:
        return Code.OWN_POLICY
    if inside or preemptor.rights <= ledger.rights(holding.id):
        by_class = ledger.pool.settings.rank is Rank.CLASS
        return Code.HIGHER_CLASS if by_class else Code.PRIORITY
    return Code.STARVATION if ledger.fair else Code.RECLAIM

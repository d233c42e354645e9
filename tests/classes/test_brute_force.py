"""On real states, with up to 12 who may be stopped: a set of victims is found whenever there is
one, and none costs less. Who may be stopped, what that costs and whether it is enough is judged by
the checks of the small worlds, and every set is tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import inf
from random import Random
from typing import Any

import pytest

from cede.engine.admin import edits, fleet
from cede.engine.decide import decide
from cede.engine.lifecycle import commands
from cede.engine.rights import price
from cede.engine.state.state import State
from cede.engine.steps.preempt import Offer, Taking
from cede.engine.victims import pricing
from cede.engine.victims.choose import find_victims
from cede.model.allocation import Allocation
from cede.model.bounds import MINUTE
from cede.model.plan import Plan
from cede.model.request import Request
from cede.model.shape import Shape
from cede.model.stopping import Checkpoint, StopPolicy
from cede.model.subject import Subject
from cede.model.terms import parse_terms
from tests.worlds.checks import rights_then
from tests.worlds.class_checks import Classes

CASES = 200
HOLDERS = 12
TEAMS = ("red", "green", "blue")
POOL = "pool"


@dataclass
class Case:
    state: State
    waiter: Request

    def offers(self) -> list[Offer]:
        taking = Taking(self.state, Plan(self.state.now))
        places = self.state.places(self.waiter.id)
        return [each for policy in places for each in taking.offers(self.waiter, policy)]


def case(seed: int) -> Case:
    """A full pool, of nodes or counted, and one waiter that nobody has looked at yet."""
    dice = Random(seed)
    state = State()
    on_nodes = bool(seed % 3)
    made_of: dict[str, Any] = {"capacity": {"gpu": dice.randint(5, 13)}}
    if on_nodes:
        for number in range(dice.randint(2, 4)):
            name = f"node{number}"
            labels, gpu = {"pool": POOL}, dice.choice((2, 3, 4))
            fleet.register(state, id=name, name=name, amounts={"gpu": gpu}, labels=labels, now=0)
        made_of = {"nodes": {"pool": POOL}}
    settings = {
        "precedence": dice.choice(("rank_first", "rank_first", "home_first")),
        "max_victims": dice.choice((1, 2, 3, 3)),
        "per_victim_cost": dice.choice((1, 1, 0)),
        "value_bound": dice.random() < 0.5,
        "order": "age",
    }
    edits.create_pool(state, id=POOL, name=POOL, preset="classes", settings=settings, **made_of)
    for number, team in enumerate(TEAMS):
        kind = dice.choice(("hpc_batch",) * 3 + ("ml_training", "service", "interactive"))
        fields: dict[str, Any] = {"type": kind, "allow_sensitive": True, "max_borrow_pct": 1.0}
        if on_nodes and seed % 2 and number < 2:
            fields["home"] = [f"node{number}"]
        subject = Subject("team", team)
        edits.attach_policy(state, id=team, pool_id=POOL, subject=subject, **fields)
    return Case(state, _fill(dice, state))


def _fill(dice: Random, state: State) -> Request:
    """Holders that began at different times, until nothing more fits; then the waiter."""
    now = 1_000
    for number in range(HOLDERS):
        now += dice.choice((0, 1, 3, 9)) * MINUTE
        for node_id in state.nodes:
            fleet.heard(state, node_id, now)
        _submit(dice, state, f"h{number}", dice.choice((0, 1, 2, 4, 4, 7)), now)
        decide(state, now)
        for each in list(state.allocations.values()):
            if each.leaving:
                commands.release(state, each.request_id, now, outcome="stopped")
            elif each.live and each.started_at is None:
                commands.renew(state, each.request_id, now, running=True)
    for waiting in list(state.waiting()):
        commands.cancel(state, waiting.id, now, actor="nobody")
    _submit(dice, state, "waiter", dice.choice((2, 4, 6, 8, 8)), now, large=True)
    return state.requests["waiter"]


def _submit(
    dice: Random, state: State, name: str, rank: int, now: int, *, large: bool = False
) -> None:
    tasks = dice.choice((1, 1, 2, 3) if large else (1, 1, 1, 2))
    each = {"gpu": dice.choice((1, 2, 3)) if large and tasks == 1 else 1}
    shape = Shape(each, tasks, per_node=dice.choice((None, None, 1)))
    commands.submit(
        state,
        commands.Submission(
            name,
            Subject("team", dice.choice(TEAMS)),
            {key: tasks * amount for key, amount in each.items()},
            shape=shape,
            walltime=dice.choice((None, 100 * MINUTE, 200 * MINUTE)),
            stop_policy=StopPolicy(dice.choice((Checkpoint.AUTO, Checkpoint.NONE))),
            terms=parse_terms(preemption_class=rank, sensitive=dice.random() < 0.04),
            lease=None,
        ),
        now,
    )


def by_brute_force(case: Case, offer: Offer) -> float:
    """What the cheapest set costs that would do. Those of higher rights are tried only if the lower
    ones are not enough, or too dear.
    """
    now = Classes(case.state, case.state.pools[POOL])
    waiter, policy = case.waiter, offer.policy
    rights = offer.preemptor.rights
    mine = now.standing(now.rank(policy, waiter), rights)
    reaches = now.reaches(waiter, policy, rights)
    legal = [each for each in now.live if not now.forbidden(waiter, policy, mine, each)]

    def would_do(some: tuple[Allocation, ...]) -> bool:
        gone = {each.id for each in some}
        if not now.by_place and rights_then(case.state, waiter, policy, gone) < rights:
            return False  # it would not have the rights by which it takes
        return now.is_needed(waiter, policy, gone, mine, reaches)

    most = now.pool.settings.max_victims
    for level in sorted({now.rights[each.id] for each in legal}):
        within = [each for each in legal if now.rights[each.id] <= level]
        sets = (some for count in range(1, most + 1) for some in combinations(within, count))
        best = min((now.cost(some) for some in sets if would_do(some)), default=inf)
        if best < now.value(waiter):
            return best
    return inf


def chosen(case: Case, offer: Offer) -> float:
    """What the engine's set costs; one that is not legal, or not enough, is not a set."""
    choice = find_victims(case.state, offer.ledger, offer.preemptor, offer.missing)
    if choice.victims is None:
        return inf
    now = Classes(case.state, case.state.pools[POOL])
    mine = now.standing(now.rank(offer.policy, case.waiter), offer.preemptor.rights)
    victims = [case.state.allocations[each.holding.id] for each in choice.victims]
    assert not any(now.forbidden(case.waiter, offer.policy, mine, each) for each in victims)
    reaches = now.reaches(case.waiter, offer.policy, offer.preemptor.rights)
    gone = {each.id for each in victims}
    assert now.is_enough(case.waiter, offer.policy, gone, mine, reaches), sorted(gone)
    assert choice.exhaustive and choice.cost == pytest.approx(now.cost(victims))
    return choice.cost


def compared(seeds: range) -> list[tuple[float, float]]:
    """(ours, the least), of every offer of these cases in which somebody would have to stop."""
    found = []
    for seed in seeds:
        made = case(seed)
        for offer in made.offers():
            if offer.footprint is None and offer.lacks:
                found.append((chosen(made, offer), by_brute_force(made, offer)))
    return found


@pytest.mark.slow
def test_a_set_is_found_whenever_there_is_one_and_none_costs_less() -> None:
    found = compared(range(CASES))
    for ours, least in found:
        assert ours == pytest.approx(least), (ours, least)
    # Both kinds of answer must have been compared, and sets of more than one victim's cost.
    some = [least for _, least in found if least < inf]
    assert len(some) > CASES // 5 and len(found) - len(some) > CASES // 5
    assert len(set(some)) > CASES // 10


def test_a_price_that_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two candidates the dearer one would be taken."""
    real = price.price_of

    def upside_down(*given: Any) -> Any:
        found = real(*given)
        return type(found)(100 - found.checkpoint, found.recompute, found.remaining)

    monkeypatch.setattr(pricing, "price_of", upside_down)
    with pytest.raises(AssertionError):
        for ours, least in compared(range(CASES)):
            assert ours == pytest.approx(least)

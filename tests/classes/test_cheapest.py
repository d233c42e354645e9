"""The cheapest victims, against brute force; and that the comparison can tell."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from math import inf
from random import Random

import pytest

from cede.engine.nodes.inventory import NodeInventory
from cede.engine.nodes.placement import View
from cede.engine.rights.cover import Holding
from cede.engine.victims.candidates import Candidate
from cede.engine.victims.cheapest import Choice, VictimSettings, cheapest
from cede.engine.victims.goals import Clearing, Shortage
from cede.engine.victims.why_not import WhyNot, reasons
from cede.model.node import Node
from cede.model.shape import Shape
from tests.classes.victim_cases import (
    Case,
    by_brute_force,
    by_greed,
    case,
    complaints,
    complaints_beyond,
    cost,
)
from tests.classes.victim_mutants import BEYOND, OF_THE_EXACT_SEARCH, Mutant

CASES = 500
NUMBERS = count()


def held(gpu: int, price: float, *, rank: int = 1, saving: float = 5, index: int = 0) -> Candidate:
    number = next(NUMBERS)
    return Candidate(Holding(f"h{number}", "a", {"gpu": gpu}, True, index), price, rank, saving)


def chosen(
    candidates: list[Candidate],
    gpu: int,
    settings: VictimSettings | None = None,
    bound: float = inf,
) -> Choice:
    return cheapest(candidates, [Shortage({"gpu": gpu})], settings or VictimSettings(), bound)


# Against brute force ---------------------------------------------------------------------------


@pytest.mark.parametrize("start", range(0, CASES, 125))
def test_a_set_is_found_whenever_one_exists_and_it_is_the_best(start: int) -> None:
    for seed in range(start, start + 125):
        made = case(seed)
        choice = made.search()
        assert choice.exhaustive
        assert not complaints(made, choice), seed


def test_the_cases_are_worth_it() -> None:
    """Sets of every size on nodes and without, and some that greed misses or pays too much for."""
    sizes: dict[tuple[int, int | None], int] = {}
    missed = dearer = refused = 0
    for seed in range(CASES):
        made = case(seed)
        choice = made.search()
        best, greedy = choice.best, by_greed(made)
        size = (seed % 2, None if best is None else len(best))
        sizes[size] = sizes.get(size, 0) + 1
        missed += best is not None and greedy is None
        dearer += greedy is not None and best is not None and cost(made, best) < cost(made, greedy)
        refused += best is not None and choice.victims is None
    for kind in (0, 1):
        for number in (None, 0, 1, 2, 3):
            assert sizes[kind, number] >= 5, (kind, number, sizes)
    assert min(missed, dearer, refused) >= 20, (missed, dearer, refused)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", OF_THE_EXACT_SEARCH, ids=lambda each: each.__name__)
def test_the_comparison_finds_a_wrong_search(mutant: Mutant) -> None:
    for seed in range(CASES):
        made = case(seed)
        with mutant():
            choice = made.search()
        if complaints(made, choice):
            return
    pytest.fail("nobody noticed")


def test_the_comparison_finds_what_document_004_does() -> None:
    noticed = 0
    for seed in range(100):
        made = case(seed)
        greedy = by_greed(made)
        price = inf if greedy is None else float(cost(made, greedy))
        noticed += bool(complaints(made, Choice(greedy, price, made.bound, exhaustive=True)))
    assert noticed >= 10


def test_the_order_of_candidates_does_not_matter() -> None:
    for seed in range(200):
        made = case(seed)
        shuffled = list(made.candidates)
        Random(seed).shuffle(shuffled)
        assert made.search() == replace(made, candidates=shuffled).search(), seed


def test_goals_are_left_as_they_were() -> None:
    for seed in range(200):
        made = case(seed)
        for groups_max in (64, 1):
            goals = made.goals()
            before = [goal.left for goal in goals]
            choice = cheapest(made.candidates, goals, replace(made.settings, groups_max=groups_max))
            reasons(made.candidates, goals, choice)
            assert [goal.left for goal in goals] == before
            again = cheapest(made.candidates, goals, replace(made.settings, groups_max=groups_max))
            assert again == choice


# Too many groups -------------------------------------------------------------------------------


def few_groups(seed: int, groups_max: int) -> Case:
    made = case(seed)
    return replace(made, settings=replace(made.settings, groups_max=groups_max))


@pytest.mark.parametrize(
    "groups_max", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 2, 3))]
)
def test_beyond_the_groups_a_set_is_right_and_never_dearer_than_greed(groups_max: int) -> None:
    beyond = found = exist = 0
    for seed in range(CASES // 4):
        made = few_groups(seed, groups_max)
        choice = made.search()
        if choice.exhaustive:
            assert not complaints(made, choice), seed
            continue
        assert not complaints_beyond(made, choice), seed
        beyond += 1
        found += choice.best is not None
        exist += by_brute_force(made) is not None
    assert beyond >= 50, beyond
    assert found >= 0.9 * exist, (found, exist)


@pytest.mark.parametrize("mutant", BEYOND, ids=lambda each: each.__name__)
def test_what_is_wrong_beyond_the_groups_is_noticed(mutant: Mutant) -> None:
    for seed in range(CASES):
        made = few_groups(seed, 1)
        with mutant():
            choice = made.search()
        if not choice.exhaustive and complaints_beyond(made, choice):
            return
    pytest.fail("nobody noticed")


def test_a_hundred_groups_are_too_many() -> None:
    candidates = [held(gpu, price=gpu) for gpu in range(1, 101)]
    choice = chosen(candidates, gpu=100)
    assert not choice.exhaustive
    assert choice.victims is not None and len(choice.victims) == 1
    assert chosen(candidates, gpu=100, settings=VictimSettings(groups_max=100)).exhaustive


def test_one_group_too_many_for_another_price_is_still_one_group() -> None:
    candidates = [held(1, price=number) for number in range(1000)]
    assert chosen(candidates, gpu=3) == Choice(tuple(candidates[:3]), 6, inf, exhaustive=True)
    assert chosen(candidates, gpu=4) == Choice(None, inf, inf, exhaustive=True)


def test_large_holders_are_not_overlooked_among_many_small_ones() -> None:
    """Thousands of small holders are cheaper; only one of the large ones makes room on its node."""
    inventory = NodeInventory()
    candidates = []
    for number in range(2000):
        node_id = f"n{number}"
        inventory.put(Node(node_id, node_id, {"gpu": 8}))
        gpu = 8 if number % 100 == 99 else 1
        for _ in range(1 if gpu == 8 else 8):
            each = {"gpu": gpu}
            holding = Holding(
                f"h{len(candidates)}", "a", each, True, 0, footprint=((node_id, 1),), each=each
            )
            inventory.hold(holding)
            candidates.append(Candidate(holding, gpu * 10 + number / 10, 1, 5))
    form = Shape({"gpu": 8}).form({"gpu": 8})
    choice = cheapest(
        candidates, [Clearing(View(inventory, inventory.promise), form)], VictimSettings()
    )
    assert choice.victims is not None and not choice.exhaustive
    assert [each.holding.footprint for each in choice.victims] == [(("n99", 1),)]


def test_more_than_three_victims_are_searched_for_a_while() -> None:
    """All amounts are even, so no ten of these free exactly what is missing; but nobody tries all
    sets of ten.
    """
    candidates = []
    for gpu in range(2, 122, 2):
        holding = Holding(f"h{gpu}", "a", {"gpu": gpu, "mcpu": 122 - gpu}, True, 0)
        candidates.append(Candidate(holding, 1, 1, 5))
    choice = cheapest(
        candidates, [Shortage({"gpu": 611, "mcpu": 609})], VictimSettings(max_victims=10)
    )
    assert choice.best is None and not choice.exhaustive


def test_sets_of_many_are_found_where_only_the_largest_do() -> None:
    candidates = [held(2 * number + 2, price=1) for number in range(60)]
    enough = chosen(candidates, gpu=1100, settings=VictimSettings(max_victims=10))
    assert enough.victims is not None and enough.cost == 20
    never = chosen(candidates, gpu=1111, settings=VictimSettings(max_victims=10))
    assert never.best is None and never.exhaustive


def test_thousands_may_have_to_go() -> None:
    candidates = [held(1, price=number % 7) for number in range(2000)]
    choice = chosen(candidates, gpu=1500, settings=VictimSettings(max_victims=2000))
    assert choice.victims is not None and len(choice.victims) == 1500 and not choice.exhaustive
    assert max(each.price for each in choice.victims) == 5


# By example ------------------------------------------------------------------------------------


def test_one_large_victim_where_greed_takes_three_and_fails() -> None:
    small = [held(1, price=1) for _ in range(5)]
    large = held(4, price=50)
    assert by_greed(Case([*small, large], lambda: [Shortage({"gpu": 4})], VictimSettings())) is None
    assert chosen([*small, large], gpu=4).victims == (large,)


def test_each_victim_costs_something_of_its_own() -> None:
    two = [held(1, price=2), held(1, price=2, index=1)]
    one = held(2, price=5)
    assert chosen([*two, one], gpu=2).victims == (one,)  # 6 = 6, and fewer
    assert chosen([*two, one], gpu=2, settings=VictimSettings(per_victim_cost=0)).victims == (
        two[1],
        two[0],
    )


def test_at_equal_cost_the_lowest_highest_rank_goes() -> None:
    high, low = held(2, price=4, rank=6), [held(1, price=1.5, rank=3) for _ in range(2)]
    found = chosen([high, *low], gpu=2)
    assert found.cost == 5 and found.victims == tuple(low)


def test_then_fewer_then_the_cheapest_to_save_then_the_newest() -> None:
    one, two = held(2, price=4), [held(1, price=1.5) for _ in range(2)]
    assert chosen([*two, one], gpu=2).victims == (one,)
    saved = held(2, price=4, saving=1)
    assert chosen([one, saved], gpu=2).victims == (saved,)
    newer = held(2, price=4, saving=1, index=7)
    assert chosen([saved, newer, one], gpu=2).victims == (newer,)


def test_a_set_must_cost_less_than_the_waiter_is_worth() -> None:
    one = held(2, price=4)
    assert chosen([one], gpu=2, bound=5.5).victims == (one,)
    dear = chosen([one], gpu=2, bound=5)
    assert dear.victims is None and dear.best == (one,) and dear.cost == 5


def test_where_nothing_is_missing_nobody_stops() -> None:
    assert chosen([held(1, price=0)], gpu=0, bound=0).victims == ()
    assert chosen([], gpu=1).victims is None
    assert chosen([held(1, price=0)], gpu=1, settings=VictimSettings(max_victims=0)).victims is None


def test_whoever_has_no_price_is_not_stopped() -> None:
    assert chosen([held(1, price=inf)], gpu=1) == Choice(None, inf, inf, exhaustive=True)


# Why not ---------------------------------------------------------------------------------------


def why(candidates: list[Candidate], gpu: int, bound: float = inf) -> list[WhyNot | None]:
    goals = [Shortage({"gpu": gpu})]
    return reasons(candidates, goals, cheapest(candidates, goals, VictimSettings(), bound))


def test_every_candidate_has_its_reason() -> None:
    other = Candidate(Holding("m", "a", {"mcpu": 1}, True, 0), 1, 1, 5)
    some = [held(1, price=1), held(1, price=2), other]
    assert why(some, gpu=1) == [None, WhyNot.NOT_NEEDED, WhyNot.DOES_NOT_HELP]
    assert why(some, gpu=2, bound=5) == [WhyNot.TOO_DEAR, WhyNot.TOO_DEAR, WhyNot.DOES_NOT_HELP]
    assert why(some, gpu=3) == [WhyNot.NOT_ENOUGH, WhyNot.NOT_ENOUGH, WhyNot.DOES_NOT_HELP]
    assert why([held(1, price=1) for _ in range(4)], gpu=4) == [WhyNot.TOO_MANY] * 4


def test_what_was_not_tried_is_not_called_impossible() -> None:
    many = [held(gpu, price=gpu) for gpu in range(1, 101)]
    assert set(why(many, gpu=500)) == {WhyNot.NOT_FOUND}

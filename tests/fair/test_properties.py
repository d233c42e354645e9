"""What holds of fair shares in every tree."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cede.engine.fair.shares import Shares, Solver, compute
from cede.engine.fair.tree import ROOT, Element, Kind, Mode, Options, Sorting, Tree
from tests.fair.literal import Literal
from tests.fair.trees import requests, trees

EXACT = 1e-6
OPTIONS = Options(main="gpu")
IMPROVED = Options(main="gpu", improved=True)
GANGS = Options(main="gpu", gang_steps=True)
BOTH = Options(main="gpu", gang_steps=True, improved=True)

calm = settings(max_examples=60)
slow = settings(max_examples=20)
any_options = st.sampled_from((OPTIONS, IMPROVED, GANGS, BOTH))


def apart(a: Shares, b: Shares) -> list[str]:
    return [
        f"{element_id}: {share.total} and {b[element_id].total}"
        for element_id, share in a.elements.items()
        if max(abs(x - y) for x, y in zip(share.total, b[element_id].total, strict=True)) > EXACT
    ]


def by_definition(tree: Tree, options: Options) -> list[str]:
    shares = compute(tree, options)
    guarantees = {element_id: share.guarantee for element_id, share in shares.elements.items()}
    wanted = Literal(tree, guarantees, gangs=options.gang_steps).shares()
    return [
        f"{element_id}: {share.total}, not {wanted[element_id]}"
        for element_id, share in shares.elements.items()
        if max(abs(x - y) for x, y in zip(share.total, wanted[element_id], strict=True)) > EXACT
    ]


@slow
@given(trees(deep=False))
def test_shares_are_what_the_definition_says(tree: Tree) -> None:
    assert by_definition(tree, OPTIONS) == []


@settings(max_examples=3)
@given(trees(most=1))
def test_shares_of_deep_trees_are_what_the_definition_says(tree: Tree) -> None:
    assert by_definition(tree, OPTIONS) == []


@slow
@given(trees(deep=False, gangs=True))
def test_gangs_are_what_the_definition_says(tree: Tree) -> None:
    assert by_definition(tree, GANGS) == []


def test_equal_gangs_jump_together_at_whatever_depth() -> None:
    """Half of all and a bit each: together more than there is, so that neither has any. The
    definition, by halving, once let the one below a policy jump a rounding error before the other.
    """
    elements = (
        Element("p0", Kind.POLICY),
        Element("p0r0", parent="p0", demand={"gpu": 49.0}, gang=True),
        Element("loose", demand={"gpu": 49.0}, gang=True),
    )
    tree = Tree({"gpu": 97.0, "mcpu": 211.0}, elements)
    assert by_definition(tree, GANGS) == []
    assert compute(tree, GANGS)["p0r0"].total == compute(tree, GANGS)["loose"].total == (0.0, 0.0)


def test_a_gang_that_wants_everything_is_offered_no_more_than_that() -> None:
    """Its heavy weight offers it all long before the other has its demand. The definition once let
    it jump there, by the slack, and the other was left with less than it wanted.
    """
    elements = (
        Element("p0", Kind.POLICY),
        Element("p0r0", parent="p0", demand={"gpu": 14.0}),
        Element("p0r1", parent="p0", weight=7.0, demand={"gpu": 97.0}, gang=True),
    )
    tree = Tree({"gpu": 97.0, "mcpu": 211.0}, elements)
    assert by_definition(tree, GANGS) == []
    assert compute(tree, GANGS)["p0r0"].total[0] == 14 / 97
    assert compute(tree, GANGS)["p0r1"].total == (0.0, 0.0)


@calm
@given(trees())
def test_without_jumps_both_modes_agree(tree: Tree) -> None:
    assert apart(compute(tree, OPTIONS), compute(tree, IMPROVED)) == []


@calm
@given(trees(gangs=True), any_options)
def test_shares_keep_within_demand_limit_and_parent(tree: Tree, options: Options) -> None:
    shares = compute(tree, options)
    for element_id, share in shares.elements.items():
        for total, demand, limit in zip(share.total, share.demand, share.limit, strict=True):
            assert 0 <= total <= min(demand, limit) + 1e-9, element_id
        children = [each.id for each in tree.elements if each.parent == element_id]
        if children:
            sums = map(sum, zip(*(shares[each].total for each in children), strict=True))
            for below, total in zip(sums, share.total, strict=True):
                assert abs(below - total) <= 1e-9, element_id
        parts = zip(share.strong, share.integral, share.weighed, share.total, strict=True)
        assert all(abs(a + b + c - total) <= 1e-9 for a, b, c, total in parts)


@calm
@given(trees(gangs=True))
def test_a_gang_has_all_or_nothing(tree: Tree) -> None:
    for options in (GANGS, BOTH):
        shares = compute(tree, options)
        for each in tree.elements:
            if each.gang and any(each.demand.values()):
                share = shares[each.id]
                assert share.total in (share.demand, (0.0, 0.0))


@calm
@given(trees(), st.data())
def test_more_weight_or_guarantee_never_gives_less(tree: Tree, data: st.DataObject) -> None:
    """Of a policy under the root, in the key that it has most of."""
    policies = [e for e in tree.elements if e.kind is Kind.POLICY and e.parent == ROOT]
    chosen = data.draw(st.sampled_from(policies))
    if data.draw(st.booleans()):
        better = replace(chosen, weight=chosen.weight * 3)
    else:
        better = replace(chosen, guarantee={"gpu": 37.0})
    one_key = {"gpu": tree.totals["gpu"]}
    before = Tree(one_key, tree.elements)
    after = Tree(one_key, tuple(better if e.id == chosen.id else e for e in tree.elements))
    gained = compute(after, OPTIONS)[chosen.id].total[0]
    assert gained >= compute(before, OPTIONS)[chosen.id].total[0] - 1e-9


@calm
@given(trees(), st.randoms(use_true_random=False))
def test_the_order_of_elements_does_not_matter(tree: Tree, dice: object) -> None:
    """But for fifo, where what ties is served in the order given."""
    unique = [replace(each, submitted=place) for place, each in enumerate(tree.elements)]
    shuffled = list(unique)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    one = compute(Tree(tree.totals, tuple(unique)), OPTIONS)
    other = compute(Tree(tree.totals, tuple(shuffled)), OPTIONS)
    assert apart(one, other) == []


@calm
@given(trees(gangs=True), any_options)
def test_the_unit_of_amounts_does_not_matter(tree: Tree, options: Options) -> None:
    def larger(numbers: object) -> dict[str, float]:
        return {key: amount * 1024 for key, amount in numbers.items()}  # type: ignore[attr-defined]

    elements = tuple(
        replace(
            each,
            demand=larger(each.demand),
            usage=larger(each.usage),
            limit=larger(each.limit),
            guarantee=larger(each.guarantee),
        )
        for each in tree.elements
    )
    scaled = Tree(larger(tree.totals), elements)
    assert apart(compute(tree, options), compute(scaled, options)) == []


@calm
@given(trees(gangs=True), any_options, st.data())
def test_an_update_is_the_whole_computation(
    tree: Tree, options: Options, data: st.DataObject
) -> None:
    solver = Solver(tree, options)
    known = {each.id: each for each in tree.elements}
    parents = [each.id for each in tree.elements if each.kind is Kind.POLICY]
    for number in range(data.draw(st.integers(1, 6))):
        mine = [each for each in known.values() if each.kind is Kind.REQUEST]
        before = {each: solver.fair_share(each) for each in known}
        if mine and data.draw(st.booleans()):
            old = data.draw(st.sampled_from(mine))
            if data.draw(st.integers(0, 3)) == 0:
                solver.drop(old.id)
                del known[old.id]
            else:
                known[old.id] = data.draw(requests(old.parent, old.id, gangs=True))
                solver.put(known[old.id])
        else:
            new = data.draw(requests(data.draw(st.sampled_from(parents)), f"new{number}", True))
            known[new.id] = new
            solver.put(new)
        changed = solver.settle()
        whole = compute(Tree(tree.totals, tuple(known.values())), options)
        assert apart(whole, solver.shares()) == []
        really = {e for e in known if e in before and solver.fair_share(e) != before[e]}
        assert really <= set(changed)


def test_an_update_looks_at_what_changed_only() -> None:
    """Who has all they want stays out of it."""
    teams = [Element(f"team{n}", Kind.POLICY) for n in range(40)]
    small = [Element(f"r{n}", parent=f"team{n % 40}", demand={"gpu": 1}) for n in range(200)]
    solver = Solver(Tree({"gpu": 10_000}, (*teams, *small)), OPTIONS)
    solver.put(replace(small[7], demand={"gpu": 3}))
    assert solver.settle() == ("team7", "r7")
    assert solver.settle() == ()


def test_fifo_serves_heavier_then_earlier() -> None:
    line = Element("line", Kind.POLICY, mode=Mode.FIFO)
    late = Element("late", parent="line", demand={"gpu": 6}, submitted=2, pending=1)
    early = Element("early", parent="line", demand={"gpu": 6}, submitted=1, pending=2)
    heavy = Element("heavy", parent="line", demand={"gpu": 3}, submitted=3, weight=2)

    def served(policy: Element) -> list[float]:
        solver = Solver(Tree({"gpu": 10}, (policy, late, early, heavy)), OPTIONS)
        return [round(solver.fair_share(each)[0], 9) for each in ("heavy", "early", "late")]

    assert served(line) == [0.3, 0.6, 0.1]
    fewer = replace(line, sorting=(Sorting.WEIGHT, Sorting.PENDING))
    assert served(fewer) == [0.3, 0.1, 0.6]

"""An update gives what the whole computation gives, however close to a border it is.

Each example once gave something else: what is reached to the last bit is reached by every way.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from statistics import mean

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cede.engine.fair.guarantees import limit_share
from cede.engine.fair.handing import _offers, _place
from cede.engine.fair.level import Level, Search, bounds_of
from cede.engine.fair.path import Path
from cede.engine.fair.raising import Node, policy_curve, request_curve, set_ratios
from cede.engine.fair.shares import Solver, compute
from cede.engine.fair.sweep import together
from cede.engine.fair.tree import ROOT, Element, Kind, Options, Tree
from tests.fair.trees import TOTALS, requests

OPTIONS = Options(main="gpu")
JUMPS = Options(main="gpu", gang_steps=True, improved=True)
P, Q, LIMITED = (
    Element("p", Kind.POLICY),
    Element("q", Kind.POLICY, parent="p"),
    Element("limited", Kind.POLICY, limit={"gpu": 53}),
)


def work(name: str, parent: str, gpu: float, mcpu: float = 0, **more: object) -> Element:
    demand = {"gpu": gpu, "mcpu": mcpu}
    return Element(name, parent=parent, demand=demand, **more)  # type: ignore[arg-type]


SEARCHED_AGAIN = (
    Element("other", Kind.POLICY),
    work("small", "other", 4),
    P,
    work("r", "p", 21),
    work("s", "p", 48, 221, limit={"gpu": 41}),
    work("t", ROOT, 41, weight=7),
)

EXAMPLES = {
    "the last answer, looked at again, was once too much: all got everything": (
        OPTIONS,
        (P, Q, work("r", "q", 0, 106), work("t", ROOT, 45, 21, usage={"gpu": 13.5, "mcpu": 6.3})),
        (work("s", "q", 0, 85), work("u", "p", 0, 95)),
    ),
    "the last answer, looked at again, was once not too much: nobody got anything": (
        OPTIONS,
        SEARCHED_AGAIN,
        (work("nothing", "other", 0),),
    ),
    "a gang that had all it wants comes to stand right before its jump, and kept it": (
        JUMPS,
        (LIMITED, work("g", "limited", 44, weight=7, gang=True)),
        (work("r", "limited", 10, weight=2),),
    ),
    "the same under the root": (
        JUMPS,
        (Element("p", Kind.POLICY, weight=3), work("g", ROOT, 85, weight=7, gang=True)),
        (work("r", "p", 12),),
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_update_agrees(name: str) -> None:
    options, elements, more = EXAMPLES[name]
    solver = Solver(Tree(TOTALS, elements), options)
    for element in more:
        solver.put(element)
        solver.settle()
    whole = compute(Tree(TOTALS, elements + more), options)
    for element_id, share in whole.elements.items():
        assert solver.fair_share(element_id) == pytest.approx(share.total), element_id


def raised(element: Element) -> Node:
    node = Node(element, None, limit_share(element.limit, TOTALS))
    usage, demand = (
        tuple(amounts.get(key, 0) / total for key, total in TOTALS.items())
        for amounts in (element.usage, element.demand)
    )
    node.curve = request_curve(usage, demand, node.limit, element.gang)
    return node


@given(
    st.lists(requests(ROOT, "r", gangs=True), max_size=12),
    st.lists(st.floats(0, 1), max_size=4),
    st.booleans(),
)
def test_where_a_search_begins_does_not_matter(
    elements: list[Element], guesses: list[float], improved: bool
) -> None:
    root = Node(Element(ROOT, Kind.POLICY), None, limit_share({}, TOTALS))
    children = [raised(each) for each in elements]
    set_ratios(children)

    def search(guess: float) -> Level:
        return Search(children, bounds_of(root)).run(guess, improved)

    first = search(0.0)
    for guess in (first.fit, *guesses):
        again = search(guess)
        assert (again.fit, again.mark) == (pytest.approx(first.fit), first.mark)
        assert again.value == pytest.approx(first.value)


@given(
    st.lists(requests(ROOT, "idle"), max_size=2),
    requests(ROOT, "only", gangs=True),
    st.booleans(),
)
def test_a_policy_of_one_that_wants_anything_has_its_curve(
    idle: list[Element], only: Element, improved: bool
) -> None:
    """Taken over, it is what raising the child along a path would draw."""
    assume(any(only.demand.values()))
    policy = Node(Element("p", Kind.POLICY), None, limit_share({}, TOTALS))
    policy.children = [*[raised(replace(each, demand={}, usage={})) for each in idle], raised(only)]
    set_ratios(policy.children)
    taken_over = policy_curve(policy, policy.guarantee, policy.limit, improved)
    path = Path((0.0, 0.0), policy.guarantee, policy.limit)
    curves = [child.curve for child in policy.children]
    together(curves, [child.ratio for child in policy.children], path, improved)
    drawn = path.curve()
    child = policy.children[-1]
    for x in (*drawn.xs, *map(mean, pairwise(drawn.xs)), 1.0):
        for after in (False, True):
            value = drawn.between(*drawn.find(x, after))
            at, part = taken_over.find(x, after)
            assert taken_over.between(at, part) == pytest.approx(value)
            policy.curve = taken_over
            *_, (_, offer, its_side) = _offers(policy, *_place(policy, at, part))
            assert child.curve.between(*child.curve.find(offer, its_side)) == pytest.approx(value)

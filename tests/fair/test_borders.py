"""Fair shares at the borders of what a tree can be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cede.engine.fair.shares import Solver, compute
from cede.engine.fair.tree import Element, Kind, Mode, Options, Tree
from cede.model.errors import Invalid
from tests.fair.literal import Literal

GPU = Options(main="gpu")
STEPS = Options(main="gpu", gang_steps=True)
JUMPS = Options(main="gpu", gang_steps=True, improved=True)


def policy(name: str, parent: str = "", **more: object) -> Element:
    return Element(name, Kind.POLICY, parent=parent, **more)  # type: ignore[arg-type]


def request(name: str, parent: str, gpu: float, **more: object) -> Element:
    return Element(name, parent=parent, demand={"gpu": gpu}, **more)  # type: ignore[arg-type]


def gang(name: str, parent: str, gpu: float) -> Element:
    return request(name, parent, gpu, gang=True)


def totals(elements: tuple[Element, ...], options: Options = GPU) -> list[float]:
    shares = compute(Tree({"gpu": 100}, elements), options)
    requests = [each.id for each in elements if each.kind is Kind.REQUEST]
    return [round(shares[each].total[0], 9) for each in requests]


def test_an_empty_tree_shares_nothing() -> None:
    assert compute(Tree({"gpu": 8}, ()), GPU)[""].total == (0.0,)
    assert compute(Tree({}, (policy("a"),)), GPU)["a"].total == ()


def test_a_key_of_which_there_is_nothing_holds_nobody_back() -> None:
    tree = Tree({"gpu": 10, "tpu": 0}, (Element("r", demand={"gpu": 4, "tpu": 9}),))
    assert compute(tree, GPU)["r"].total == (0.4, 0.0)


@pytest.mark.parametrize("heavy", [10.0, 1e6, 6.7e7])
def test_weights_may_be_far_apart(heavy: float) -> None:
    light = 1.5e-8 if heavy > 1e7 else 1.0
    elements = (
        request("big", "", 30, weight=heavy),
        *(request(f"r{n}", "", 50, weight=light * (n + 1)) for n in range(3)),
    )
    got = totals(elements)
    assert got[0] == 0.3
    assert got[1:] == pytest.approx([0.7 / 6, 0.7 / 3, 0.35], abs=1e-7)


def test_a_long_chain_of_policies_changes_nothing() -> None:
    chain = [policy("p0"), *(policy(f"p{n}", f"p{n - 1}") for n in range(1, 60))]
    assert totals((*chain, request("r", "p59", 70), request("s", "", 70))) == [0.5, 0.5]


def test_a_steep_line_is_a_jump() -> None:
    """Two keys that lead in turn, a rounding error apart: children and parent agree."""
    inner = Element(
        "r",
        parent="inner",
        demand={"gpu": 27.0, "mcpu": 44.0},
        usage={"gpu": 8.1, "mcpu": 13.2},
    )
    elements = (
        policy("outer", guarantee={"gpu": 7.0, "mcpu": 31.0}),
        policy("inner", "outer", guarantee={"gpu": 20.0}),
        inner,
    )
    shares = compute(Tree({"gpu": 97.0, "mcpu": 211.0}, elements), GPU)
    for name in ("", "outer", "inner", "r"):
        assert shares[name].total == pytest.approx((27 / 97, 44 / 211))


def test_what_needs_the_whole_to_the_last_bit_is_not_reached() -> None:
    """Both have 97 of 97; whether one goes on in a key of which there is more is a tie."""
    both = {"gpu": 24.0, "mcpu": 52.5}
    elements = (
        policy("p"),
        Element("r", parent="p", demand={"gpu": 80.0, "mcpu": 175.0}, usage=both),
        request("s", "p", 73.0, weight=7.0),
    )
    tree = Tree({"gpu": 97.0, "mcpu": 211.0}, elements)
    assert compute(tree, GPU)["r"].total == pytest.approx((24 / 97, 24 / 97))
    guarantees = dict.fromkeys(("", "p", "r", "s"), (0.0, 0.0))
    assert Literal(tree, guarantees).shares()["r"] == pytest.approx([24 / 97, 24 / 97])


GANGS = {
    "two halves reach the whole together, so neither does": (STEPS, (50, 50), [0, 0]),
    "one by one, the second would reach the whole to the last bit": (JUMPS, (50, 50), [0.5, 0]),
    "one by one, both fit": (JUMPS, (50, 49), [0.5, 0.49]),
    "both fit at once": (STEPS, (45, 45), [0.45, 0.45]),
    "the smaller first": (STEPS, (60, 30), [0.6, 0.3]),
    "the larger does not fit behind it": (STEPS, (80, 30), [0, 0.3]),
    "larger than the whole": (JUMPS, (120, 30), [0, 0.3]),
    "of three the third does not fit": (JUMPS, (40, 40, 40), [0.4, 0.4, 0]),
}


@pytest.mark.parametrize("name", GANGS)
def test_gangs(name: str) -> None:
    options, sizes, expected = GANGS[name]
    elements = []
    for number, size in enumerate(sizes):
        elements += [policy(f"p{number}"), gang(f"g{number}", f"p{number}", size)]
    assert totals(tuple(elements), options) == expected
    # Inside one policy it is the same.
    alone = [gang(f"g{number}", "p", size) for number, size in enumerate(sizes)]
    assert totals((policy("p"), *alone), options) == expected


def test_a_jump_onto_a_limit_happens_only_if_it_may_stay_there() -> None:
    limited = policy("p", limit={"gpu": 60})
    assert totals((limited, gang("g", "p", 60)), STEPS) == [0.6]
    assert totals((limited, gang("g", "p", 60), request("r", "p", 99)), STEPS) == [0, 0.6]
    # At 0.3 the gang jumps onto the limit, and the other, which goes on, would pass it.
    assert totals((limited, gang("g", "p", 30), request("r", "p", 99)), STEPS) == [0, 0.3]


@pytest.mark.parametrize(("size", "first"), [(35, 0.3), (36, 0.0)])
def test_one_by_one_a_jump_onto_the_whole_stays_if_a_later_child_bends_there(
    size: float, first: float
) -> None:
    """At 0.3 the gang would fill the whole beside the others' 0.7. Where one of them has all it
    wants there, its turn comes behind the jump; else all that comes behind is too much.
    """
    b = policy("b", weight=2.0, guarantee={"gpu": 10})
    others = (b, request("r", "b", size), request("q", "b", 99))
    elements = (policy("a"), gang("g", "a", 30), *others)
    assert totals(elements, JUMPS) == [first, 0.35, 0.35]
    assert totals((*others, policy("a"), gang("g", "a", 30)), JUMPS) == [0.35, 0.35, 0]
    # Below a policy it is the same.
    above = policy("p", limit={"gpu": 90})
    lower = (replace(b, parent="p", guarantee={}), request("r", "b", size - 5), others[2])
    assert totals((above, gang("g", "p", 30), *lower), JUMPS) == [first, 0.3, 0.3]


def test_a_gang_in_a_row_may_fill_the_limit() -> None:
    row = policy("p", mode=Mode.FIFO, limit={"gpu": 60})
    work = request("r", "p", 99, submitted=1)
    assert totals((row, gang("g", "p", 60), work), STEPS) == [0.6, 0]


def test_gangs_in_a_row() -> None:
    row = policy("p", mode=Mode.FIFO)
    gangs = tuple(replace(gang(f"g{n}", "p", 30), submitted=n) for n in range(4))
    assert totals((row, *gangs), STEPS) == [0.3, 0.3, 0.3, 0]


def test_a_policy_may_take_its_gangs_apart() -> None:
    assert totals((policy("p", steps=False), gang("g", "p", 120)), STEPS) == [1.0]


BAD = {
    "twice": ((policy("a"), policy("a")), "'a' stands twice"),
    "a request twice": ((request("r", "", 1), request("r", "", 2)), "'r' stands twice"),
    "a policy and a request": ((policy("a"), request("a", "", 1)), "'a' stands twice"),
    "the root": ((policy(""),), "'' stands twice"),
    "below nobody": ((request("r", "ghost", 1),), "'ghost' of 'r' is no policy"),
    "below a request": ((request("r", "", 1), request("s", "r", 1)), "'r' of 's' is no policy"),
    "below itself": ((policy("a", "b"), policy("b", "a")), "is below itself"),
    "weightless": ((policy("a", weight=0),), "weight"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_tree_is_refused(name: str) -> None:
    elements, words = BAD[name]
    with pytest.raises(Invalid, match=words):
        compute(Tree({"gpu": 8}, elements), GPU)


def test_a_solver_refuses_what_it_cannot_take_in() -> None:
    solver = Solver(Tree({"gpu": 8}, (policy("p"), request("r", "p", 1))), GPU)
    for bad in (policy("q"), request("p", "", 1), request("s", "r", 1), request("s", "ghost", 1)):
        with pytest.raises(Invalid):
            solver.put(bad)
    for nobody in ("p", "ghost", ""):
        with pytest.raises(Invalid):
            solver.drop(nobody)
    assert solver.settle() == ()
    with pytest.raises(Invalid):
        solver.put(replace(request("r", "p", 1), weight=0))


def test_a_request_may_move_to_another_policy() -> None:
    elements = (policy("p"), policy("q", limit={"gpu": 2}), request("r", "p", 6))
    solver = Solver(Tree({"gpu": 8}, elements), GPU)
    solver.put(request("r", "q", 6))
    assert set(solver.settle()) == {"p", "q", "r"}
    assert solver.fair_share("r") == (0.25,)
    assert solver.share("p").demand == (0.0,)

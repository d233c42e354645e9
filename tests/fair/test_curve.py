"""Curves: left-continuous, non-decreasing, and drawn over what they need."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cede.engine.fair.curve import AFTER, BEFORE, Curve, fits
from cede.engine.fair.path import Path, Steps

STEP = Curve([0.0, 0.4, 0.4, 0.8], [(0.0,), (0.2,), (0.5,), (0.7,)])


def test_the_value_at_a_jump_is_the_one_before_it() -> None:
    assert STEP.left(0.4) == (0.2,)
    assert STEP.right(0.4) == (0.5,)
    assert STEP.left(0.2) == STEP.right(0.2) == (0.1,)
    assert STEP.left(0.6) == pytest.approx((0.6,))
    assert STEP.left(1.0) == STEP.right(1.0) == (0.7,)
    assert STEP.left(0.0) == (0.0,)


def test_a_place_a_rounding_error_from_a_jump_is_the_jump() -> None:
    assert STEP.left(0.4 + 1e-16) == (0.2,)
    assert STEP.right(0.4 - 1e-16) == (0.5,)


def test_an_offer_is_needed_only_above_the_guarantee() -> None:
    path = Path((0.0, 0.0), (0.3, 0.0), (1.0, 1.0))
    path.line(1.0, (0.6, 0.2), BEFORE)
    curve = path.curve()
    # Up to 0.2 of the second key it needs the most; at (0.45, 0.15) the first takes the lead.
    assert curve.left(0.0) == (0.0, 0.0)
    assert curve.left(0.15) == pytest.approx((0.45, 0.15))
    assert curve.left(0.3) == pytest.approx((0.6, 0.2))
    assert curve.left(0.2) == pytest.approx((0.5, 0.5 / 3))


def test_a_path_ends_at_the_limit_and_jumps_over_it_do_not_happen() -> None:
    path = Path((0.0,), (0.0,), (0.5,))
    path.line(1.0, (0.4,), BEFORE)
    path.jump(1.0, (0.6,), BEFORE, AFTER)
    assert path.done
    assert path.curve().left(1.0) == (0.4,)
    path = Path((0.0,), (0.0,), (0.5,))
    path.line(1.0, (0.8,), BEFORE)
    assert path.done
    assert path.curve().left(1.0) == pytest.approx((0.5,))


def test_a_jump_onto_the_limit_happens_if_the_path_goes_on_there() -> None:
    onto = Path((0.0, 0.0), (0.0, 0.0), (0.5, 1.0))
    onto.jump(0.5, (0.5, 0.1), BEFORE, AFTER)
    onto.line(1.0, (0.5, 0.2), BEFORE)
    assert onto.curve().left(1.0) == (0.5, 0.2)
    beyond = Path((0.0, 0.0), (0.0, 0.0), (0.5, 1.0))
    beyond.jump(0.5, (0.5, 0.1), BEFORE, AFTER)
    beyond.line(1.0, (0.6, 0.2), BEFORE)
    assert beyond.curve().left(1.0) == (0.0, 0.0)


steps = st.lists(
    st.tuples(st.booleans(), st.floats(0, 0.2), st.floats(0, 0.2)), min_size=1, max_size=8
)
parts = st.tuples(st.floats(0, 0.6), st.floats(0, 0.6))


@given(steps, parts, parts)
def test_a_curve_keeps_within_guarantee_and_offer(
    moves: list[tuple[bool, float, float]],
    guarantee: tuple[float, float],
    more: tuple[float, float],
) -> None:
    limit = (min(1.0, guarantee[0] + more[0]), min(1.0, guarantee[1] + more[1]))
    path = Path((0.0, 0.0), guarantee, limit)
    value, fit = (0.0, 0.0), 0.0
    for is_jump, first, second in moves:
        if path.done:
            break
        value = (value[0] + first, value[1] + second)
        if is_jump:
            path.jump(fit, value, BEFORE, AFTER)
        else:
            fit += 1.0
            path.line(fit, value, BEFORE)
    curve = path.curve()
    assert curve.xs == sorted(curve.xs)
    assert curve.fits == sorted(curve.fits)
    last = curve.left(0.0)
    for number in range(101):
        offer = number / 100
        value = curve.left(offer)
        most = tuple(min(own + offer, top) for own, top in zip(guarantee, limit, strict=True))
        assert fits(value, tuple(each + 1e-9 for each in most))
        assert fits(last, tuple(each + 1e-9 for each in value))
        assert fits(value, tuple(each + 1e-9 for each in curve.right(offer)))
        last = value


@given(steps, parts, parts)
def test_many_steps_at_once_are_what_they_are_one_by_one(
    moves: list[tuple[bool, float, float]],
    guarantee: tuple[float, float],
    more: tuple[float, float],
) -> None:
    limit = (guarantee[0] + more[0], guarantee[1] + more[1])
    many, single = Path((0.0, 0.0), guarantee, limit), Path((0.0, 0.0), guarantee, limit)
    value, mark = (0.0, 0.0), BEFORE
    plan, values = Steps([], [], set()), []
    for number, (is_jump, first, second) in enumerate(moves, 1):
        value = (value[0] + first, value[1] + second)
        values.append(value)
        before, mark = mark, AFTER if is_jump and number > 1 else BEFORE
        plan.add(float(number), mark)
        if single.done:
            continue
        if mark == BEFORE:
            single.line(float(number), value, BEFORE)
        else:
            single.jump(float(number), value, before, mark)
    many.follow(plan, list(zip(*values, strict=True)))
    assert (many.xs, many.values) == (single.xs, single.values)
    assert (many.fits, many.marks, many.done) == (single.fits, single.marks, single.done)

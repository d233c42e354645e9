"""Children that are raised together: how steep each is, and what they take in sum."""

from __future__ import annotations

import pytest

from cede.engine.fair.curve import Curve
from cede.engine.fair.path import Path
from cede.engine.fair.sweep import Points, together

STEP = Curve([0.0, 0.4, 0.4, 0.8], [(0.0,), (0.2,), (0.5,), (0.7,)])
LINE = Curve([0.0, 0.5], [(0.0,), (0.1,)])


def test_a_slope_is_that_behind_each_point_and_nothing_rises_at_a_jump_or_at_the_end() -> None:
    points = Points([STEP, LINE], [1.0, 1.0])
    assert points.slopes == [pytest.approx([0.5, 0.0, 0.5, 0.0, 0.2, 0.0])]
    assert points.jumps == {2}
    assert [points.child(at) for at in range(6)] == [0, 0, 0, 0, 1, 1]


def test_a_child_that_is_raised_faster_is_steeper_and_bends_sooner() -> None:
    points = Points([STEP, LINE], [4.0, 1.0])
    assert points.slopes == [pytest.approx([2.0, 0.0, 2.0, 0.0, 0.2, 0.0])]
    assert points.fits == pytest.approx([0.0, 0.1, 0.1, 0.2, 0.0, 0.5])


@pytest.mark.parametrize("improved", [False, True])
def test_children_are_summed_where_any_of_them_bends(improved: bool) -> None:
    path = Path((0.0,), (0.0,), (1.0,))
    together([STEP, LINE], [1.0, 1.0], path, improved)
    curve = path.curve()
    for fit in (0.1, 0.3, 0.4, 0.45, 0.5, 0.6, 0.8):
        (taken,) = (a + b for a, b in zip(STEP.left(fit), LINE.left(fit), strict=True))
        assert curve.left(taken) == pytest.approx((taken,))
    assert curve.left(0.5) == pytest.approx((0.28,))  # the jump is from 0.28 to 0.58
    assert curve.left(1.0) == pytest.approx((0.8,))
    assert curve.fits[-1] == 0.8  # behind the last bend nothing rises, so nothing is drawn


def test_a_steep_slope_leaves_no_error_in_the_sum() -> None:
    """A curve may rise by almost all of the whole over a millionth of a millionth."""
    steep = Curve([0.0, 0.2, 0.2 + 1e-11], [(0.0,), (0.2,), (0.3,)])
    path = Path((0.0,), (0.0,), (1.0,))
    together([steep, LINE], [1.0, 1.0], path, False)
    assert path.curve().left(1.0) == (pytest.approx(0.4, abs=1e-15),)

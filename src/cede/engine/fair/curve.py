"""The share of an element in every key, as a function of its offer.

A curve is non-decreasing, piecewise linear and left-continuous: a list of points in order, where
two points at one `x` are a jump, and the value *at* a jump is the one before it. Before its first
point a curve does not exist; after its last it stays. It knows nothing of trees.

`x` is the offer (a suggestion), a value is a vector of shares. Beside both, each point has the
position of a policy's children there (`fit` and `mark`), which handing a share down needs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache
from operator import add, le

Vector = tuple[float, ...]

# Places that differ by less than this, relatively, are equal: two divisions may put the ends of one
# jump a rounding error apart.
SAME = 1e-12
TINY = 1e-15  # the same, absolutely
BELOW = 1 - SAME
ABOVE = 1 + SAME

AFTER = 1 << 60  # a mark: all children that jump here have jumped
BEFORE = -1  # a mark: none has
NO_MARKS: list[int] = []  # of a curve from which nothing is handed down; nothing is ever added


class Curve:
    """Points by column, the last value, and the offer above which it is reached."""

    __slots__ = ("enough", "fits", "marks", "top", "values", "xs")

    def __init__(
        self,
        xs: list[float],
        values: list[Vector],
        fits: list[float] | None = None,
        marks: list[int] | None = None,
    ) -> None:
        self.xs = xs
        self.values = values
        # Beyond a rounding error, if the end is a jump.
        self.enough = xs[-1] * (ABOVE if len(xs) > 1 and xs[-2] == xs[-1] else BELOW)
        self.top = values[-1]
        self.fits = xs if fits is None else fits
        self.marks = NO_MARKS if marks is None else marks

    def find(self, x: float, after: bool) -> tuple[int, float]:
        """The position of `x`: (i, 0) at point i, (i, t) at part t of the way from i - 1 to i."""
        xs = self.xs
        if after:
            at = bisect_right(xs, x * ABOVE)
            if at == len(xs) or xs[at - 1] >= x * BELOW:
                return at - 1, 0.0
        else:
            at = bisect_left(xs, x * BELOW)
            if at == len(xs):
                return at - 1, 0.0
            if at == 0 or xs[at] <= x * ABOVE:
                return at, 0.0
        start = xs[at - 1]
        return at, (x - start) / (xs[at] - start)

    def between(self, at: int, part: float) -> Vector:
        values = self.values
        return mix(values[at - 1], values[at], part) if part else values[at]

    def left(self, x: float) -> Vector:
        """The value at `x`; at a jump the one before it."""
        return self.between(*self.find(x, False))

    def right(self, x: float) -> Vector:
        """The value right after `x`."""
        return self.between(*self.find(x, True))


@cache
def zeros(keys: int) -> Vector:
    """Nothing of each of so many keys; one value for all who ask."""
    return (0.0,) * keys


def mix(a: Sequence[float], b: Sequence[float], part: float) -> Vector:
    return tuple([x + (y - x) * part for x, y in zip(a, b, strict=True)])


def smaller(a: Vector, b: Vector) -> Vector:
    return a if all(map(le, a, b)) else tuple(map(min, b, a))


def plus(a: Vector, b: Vector) -> Vector:
    return tuple(map(add, a, b))  # the most frequent sum of all, and this is the fastest


def minus(a: Vector, b: Vector) -> Vector:
    """The difference, never below 0."""
    return tuple([x - y if x > y else 0.0 for x, y in zip(a, b, strict=True)])


def times(a: Vector, factor: float) -> Vector:
    return tuple([x * factor for x in a])


def fits(a: Vector, room: Vector) -> bool:
    """Whether `a` is within `room` in every key, but for rounding."""
    for x, most in zip(a, room, strict=True):  # noqa: SIM110 - asked at every jump of every curve
        if x > most + SAME:
            return False
    return True

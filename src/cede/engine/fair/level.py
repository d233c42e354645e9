"""The level to which the children of the root can be raised within the whole.

The root is offered everything once, so its curve is never drawn: one place on it is searched for,
from the last result. Only bends are examined: between two neighbouring bends the sum is a straight
line, the answer is exact, and it does not depend on the start of the search.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from cede.engine.fair.curve import ABOVE, AFTER, BEFORE, BELOW, SAME, Vector, mix, plus
from cede.engine.fair.raising import Node

FEW = 24  # bends that are worth sorting
STRIDE = 1e-3  # the first step away from the guess, in parts of it
FASTER = 8  # the factor by which steps grow


@dataclass(frozen=True, slots=True)
class Level:
    fit: float
    mark: int
    value: Vector


@dataclass(frozen=True, slots=True)
class Bound:
    """The maximum of one key; `short` if a jump may not reach it, to the last bit."""

    most: float
    short: bool


def bounds_of(root: Node) -> tuple[Bound, ...]:
    """The bounds at an offer of 1.0: of each key its guarantee plus one, or its limit."""
    return tuple(
        Bound(min(own + 1, limit), own + 1 <= limit + SAME)
        for own, limit in zip(root.guarantee, root.limit, strict=True)
    )


def _broken(value: Vector, bounds: Sequence[Bound]) -> bool:
    for amount, bound in zip(value, bounds, strict=True):
        if amount >= bound.most * BELOW if bound.short else amount > bound.most + SAME:
            return True
    return False


class Search:
    """Encloses the answer between `low`, which is within bounds, and `high`, which is not.

    An end that has not moved is only assumed to be so, and checked last.
    """

    __slots__ = (
        "_active", "_bends", "_bounds", "_children", "_high", "_low", "_rest_high", "_rest_low",
    )  # fmt: skip

    def __init__(self, children: Sequence[Node], bounds: Sequence[Bound]) -> None:
        self._bounds = bounds
        self._children = children
        self._low, self._high = 0.0, 1.0
        self._start_over()

    def _start_over(self) -> None:
        self._active = list(enumerate(self._children))
        self._rest_low = self._rest_high = (0.0,) * len(self._bounds)
        self._bends = 0  # not counted yet

    def run(self, guess: float, improved: bool) -> Level:
        """The level; `guess` is the last fit factor, 0 if there is none."""
        if not 0 < guess < 1:
            value, _ = self._at(1.0)
            if not _broken(value, self._bounds):
                return Level(1.0, BEFORE, value)
        self._fold()
        stride = guess * STRIDE if guess < 1 else 0.0
        wish: float | None = guess if stride else None
        while self._bends:
            place = self._middle() if wish is None else self._nearest(wish)
            before, beyond = self._at(place)
            if _broken(before, self._bounds):
                self._narrow(self._low, place)
            elif beyond is not before and _broken(beyond, self._bounds):
                return self._jump(place, before, improved)
            else:
                self._narrow(place, self._high)
            wish = self._next(stride)
            stride *= FASTER
        return self._straight(improved)

    def _at(self, place: float) -> tuple[Vector, Vector]:
        """The sums just before and just behind a place."""
        before = self._rest(place)
        jumps: list[tuple[Vector, Vector]] = []
        for _, child in self._active:
            curve = child.curve
            offer = place * child.ratio
            at, part = curve.find(offer, False)
            value = curve.between(at, part)
            before = plus(before, value)
            if not part and curve.xs[at] == curve.xs[min(at + 1, len(curve.xs) - 1)]:
                jumps.append((value, curve.right(offer)))
        beyond = before
        for old, new in jumps:
            if old is not new:
                beyond = _moved(beyond, old, new)
        return before, beyond

    def _rest(self, place: float) -> Vector:
        if self._rest_low is self._rest_high:
            return self._rest_low
        return mix(self._rest_low, self._rest_high, (place - self._low) / (self._high - self._low))

    def _narrow(self, low: float, high: float) -> None:
        self._rest_low, self._rest_high = self._rest(low), self._rest(high)
        self._low, self._high = low, high
        self._fold()

    def _inside(self, child: Node) -> range:
        """The points of a child's curve strictly between low and high."""
        xs = child.curve.xs
        return range(
            bisect_right(xs, self._low * child.ratio * ABOVE),
            bisect_left(xs, self._high * child.ratio * BELOW),
        )

    def _fold(self) -> None:
        """Merge the children without a bend between low and high into one straight line."""
        rest_low, rest_high = self._rest_low, self._rest_high
        active = []
        self._bends = 0
        for index, child in self._active:
            bends = len(self._inside(child))
            if bends:
                self._bends += bends
                active.append((index, child))
            else:
                rest_low = plus(rest_low, child.curve.right(self._low * child.ratio))
                rest_high = plus(rest_high, child.curve.left(self._high * child.ratio))
        self._active = active
        self._rest_low, self._rest_high = rest_low, rest_high

    def _next(self, stride: float) -> float | None:
        """The next place away from the guess until the answer is enclosed; then None."""
        if stride and self._bends > FEW:
            if self._high == 1:
                return self._low + stride
            if self._low == 0:
                return self._high - stride
        return None

    def _nearest(self, wish: float) -> float:
        """The bend closest to a place.

        The place itself may be the last answer, where a bound was met to the last bit: rounding
        would call it broken on one run and not on another.
        """
        places = []
        for _, child in self._active:
            xs, inside = child.curve.xs, self._inside(child)
            at = bisect_left(xs, wish * child.ratio, inside.start, inside.stop - 1)
            places += [xs[near] / child.ratio for near in (at, max(at - 1, inside.start))]
        return min(places, key=lambda place: abs(place - wish))

    def _middle(self) -> float:
        """The median of the bends if they are few, else of the children's middle bends."""
        places = []
        for _, child in self._active:
            inside = self._inside(child)
            if self._bends > FEW:
                inside = range(inside[len(inside) // 2], inside[len(inside) // 2] + 1)
            places += [child.curve.xs[at] / child.ratio for at in inside]
        places.sort()
        return places[len(places) // 2]

    def _breaking_part(self) -> float:
        part = 1.0
        for low, high, bound in zip(self._rest_low, self._rest_high, self._bounds, strict=True):
            if high > bound.most and high > low:
                part = min(part, max(0.0, (bound.most - low - SAME) / (high - low)))
        return part

    def _straight(self, improved: bool) -> Level:
        """The level where a bound is broken on the straight line from low to high."""
        if self._low == 0 and _broken(self._rest_low, self._bounds):
            return Level(0.0, AFTER, self._rest_low)
        if self._high == 1 and not _broken(self._rest_high, self._bounds):
            return Level(1.0, BEFORE, self._rest_high)
        part = self._breaking_part()
        if part == 0:
            # The line cannot go on behind low, so a jump at low does not happen either.
            self._start_over()
            return self._jump(self._low, self._at(self._low)[0], improved, behind=True)
        fit = self._low + (self._high - self._low) * part
        # Close to an end, the jump at that end must be seen from the right side.
        mark = AFTER if part < 0.5 else BEFORE
        return Level(fit, mark, mix(self._rest_low, self._rest_high, part))

    def _jump(self, place: float, value: Vector, improved: bool, behind: bool = False) -> Level:
        """The level at a place with jumps: no child jumps; in improved mode the first ones do as
        long as the sum is within bounds.

        `behind`: all jumps are within bounds, but the line right after is not; then the last child
        does not jump, unless a later one bends at the same place and so has its turn before.
        """
        mark = BEFORE
        jumps = []
        for index, child in self._active if improved else ():
            offer = place * child.ratio
            old, new = child.curve.left(offer), child.curve.right(offer)
            if old != new:
                jumps.append((index, old, new))
        if behind and jumps and not self._bends_later(place, jumps[-1][0]):
            del jumps[-1]
        for index, old, new in jumps:
            jumped = _moved(value, old, new)
            if _broken(jumped, self._bounds):
                break
            value, mark = jumped, index
        return Level(place, mark, value)

    def _bends_later(self, place: float, last: int) -> bool:
        for index, child in self._active:
            xs, offer = child.curve.xs, place * child.ratio
            at = bisect_left(xs, offer * BELOW, 1)
            if index > last and at < len(xs) and xs[at] <= offer * ABOVE:
                return True
        return False


def _moved(total: Vector, old: Vector, new: Vector) -> Vector:
    return tuple([a + c - b for a, b, c in zip(total, old, new, strict=True)])

"""The share of an element in every key, as a function of its offer.

A curve is non-decreasing, piecewise linear and left-continuous: a list of points in order, where
two points at one `x` are a jump, and the value *at* a jump is the one before it. Before its first
point a curve does not exist; after its last it stays. It knows nothing of trees.

`x` is the offer (a suggestion), a value is a vector of shares. Beside both, each point has the
position of a policy's children there (`fit` and `mark`), which handing a share down needs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import add, mul, sub, truediv
from typing import Any

Vector = tuple[float, ...]

# Places that differ by less than this, relatively, are equal: two divisions may put the ends of one
# jump a rounding error apart.
SAME = 1e-12
TINY = 1e-15  # the same, absolutely
BELOW = 1 - SAME
ABOVE = 1 + SAME

AFTER = 1 << 60  # a mark: all children that jump here have jumped
BEFORE = -1  # a mark: none has


class Curve:
    """Points by column; the steepness is computed when the curve is first summed."""

    __slots__ = ("_steepness", "fits", "marks", "values", "xs")

    def __init__(
        self,
        xs: list[float],
        values: list[Vector],
        fits: list[float] | None = None,
        marks: list[int] | None = None,
    ) -> None:
        self.xs = xs
        self.values = values
        self.fits = xs if fits is None else fits
        self.marks = [] if marks is None else marks
        self._steepness: tuple[float, list[Vector]] | None = None  # with the ratio it is for

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

    def steepness(self, ratio: float) -> list[Vector]:
        """The steepness after each point if it is raised at this ratio; 0 where a jump or the end
        follows.
        """
        if self._steepness is not None and self._steepness[0] == ratio:
            return self._steepness[1]
        flat = (0.0,) * len(self.values[0])
        found = []
        x, start = self.xs[0], self.values[0]
        for y, stop in zip(self.xs[1:], self.values[1:], strict=True):
            steep = flat
            if y > x and start is not stop:
                rise: Iterable[float] = map(truediv, map(sub, stop, start), repeat(y - x))
                steep = tuple(rise if ratio == 1 else map(mul, rise, repeat(ratio)))
            found.append(steep)
            x, start = y, stop
        found.append(flat)
        self._steepness = ratio, found
        return found


def mix(a: Sequence[float], b: Sequence[float], part: float) -> Vector:
    return tuple([x + (y - x) * part for x, y in zip(a, b, strict=True)])


def smaller(a: Vector, b: Vector) -> Vector:
    return tuple(map(min, b, a))


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


class Path:
    """Builds the curve of a parent from the shares that its children take as they are raised.

    The children are raised along a path of fit factors. An offer of `x` lets the path go on as long
    as no key is above guarantee + x, nor above the limit: so the offer that a place on the path
    needs is the most by which any key exceeds the guarantee, and a curve is the path drawn over it.
    It is fed straight lines and jumps in order; `done` says that the rest cannot matter.
    """

    __slots__ = ("_guarantee", "_limit", "_most", "_undo", "done", "fits", "marks", "values", "xs")

    def __init__(self, start: Vector, guarantee: Vector, limit: Vector) -> None:
        self._guarantee = guarantee
        self._limit = limit
        self._most = tuple([each + SAME for each in limit])
        self._undo: tuple[int, tuple[float, float, Vector, int]] | None = None
        self.done = False
        self.xs = [0.0]
        self.fits = [0.0]
        self.values = [start]
        self.marks = [AFTER]

    def curve(self) -> Curve:
        return Curve(self.xs, self.values, self.fits, self.marks)

    def needed(self, value: Sequence[float]) -> float:
        """The offer at which a path may come to this value."""
        most = 0.0
        for amount, own in zip(value, self._guarantee, strict=True):
            if amount - own > most:
                most = amount - own
        return most

    def line(self, fit: float, value: Vector, mark: int, start: float | None = None) -> None:
        """Go straight to `value`, reached at `fit`; as far as the limit allows."""
        x, lead = 0.0, 0.0  # of the key that needs the most: its need at the end, and at the start
        for was, amount, own, most in zip(
            self.values[-1], value, self._guarantee, self._most, strict=True
        ):
            if amount > most:
                break
            if amount - own > x:
                x, lead = amount - own, was - own
        else:
            if x <= 0 or lead >= self.xs[-1] * BELOW:  # one key needs the most all the way
                self._undo = None
                self._add(x, fit, value, mark)
                return
        self._bent_line(fit, value, mark, start)

    def _bent_line(self, fit: float, value: Vector, mark: int, start: float | None) -> None:
        """The same where the limit cuts the line, or another key begins to need the most."""
        old = self.values[-1]
        begin = self.fits[-1] if start is None else start
        part = self._part_within(old, value)
        if part == 0:
            self.done = True
            if self._undo is not None:
                self._take_back(*self._undo)
            return
        self._undo = None
        if part < 1:
            value = mix(old, value, part)
            fit = begin + (fit - begin) * part
            self.done = True
        x = self.needed(value)
        for turn in self._turns(old, value, x):
            corner = mix(old, value, turn)
            self._add(self.needed(corner), begin + (fit - begin) * turn, corner, mark)
        self._add(x, fit, value, mark)

    def jump(self, fit: float, value: Vector, before: int, mark: int) -> None:
        """Go to `value` at once, or not at all. `before`, `mark`: the marks at the jump's ends."""
        x = max(self.xs[-1], self.needed(value))
        # A value that would need the whole offer, to the last bit, is not reached: the value there
        # is the one before the jump.
        if not fits(value, self._limit) or x >= BELOW:
            self.done = True
            return
        point = (self.xs[-1], self.fits[-1], self.values[-1], self.marks[-1])
        self._undo = (len(self.xs), point)
        if x > self.xs[-1]:
            self._add(x, fit, self.values[-1], before)
        self._add(x, fit, value, mark)

    def stay(self) -> None:
        """Go on without taking more: a jump onto the limit is then not taken back."""
        self._undo = None

    def _part_within(self, old: Vector, value: Vector) -> float:
        part = 1.0
        for start, stop, most in zip(old, value, self._limit, strict=True):
            if stop > most + SAME:
                part = min(part, (most - start) / (stop - start) if most > start + SAME else 0.0)
        return part

    def _take_back(self, length: int, point: tuple[float, float, Vector, int]) -> None:
        """Undo a jump that ended exactly on the limit, where the path cannot continue."""
        columns: tuple[list[Any], ...] = (self.xs, self.fits, self.values, self.marks)
        for column, entry in zip(columns, point, strict=True):
            column[length - 1 :] = [entry]

    def _turns(self, old: Vector, value: Vector, x: float) -> list[float]:
        """Parts of the way at which another key begins to need the most."""
        if x <= 0:
            return []
        low, high = self.xs[-1] * BELOW, x * BELOW
        for start, end, own in zip(old, value, self._guarantee, strict=True):
            if end - own >= high and start - own >= low:
                return []  # one key needs the most all the way, the usual case
        heights = [0.0, *[a - g for a, g in zip(old, self._guarantee, strict=True)]]
        ends = [0.0, *[a - g for a, g in zip(value, self._guarantee, strict=True)]]
        lines = [(h, e - h) for h, e in zip(heights, ends, strict=True)]
        turns: list[float] = []
        leader = max(lines)
        while True:
            crossings = [
                ((leader[0] - height) / (slope - leader[1]), -slope, height)
                for height, slope in lines
                if slope > leader[1]
            ]
            if not crossings:
                return turns
            turn, slope, height = min(crossings)
            if turn >= 1:
                return turns
            if turn > 0:
                turns.append(turn)
            leader = (height, -slope)

    def _add(self, x: float, fit: float, value: Vector, mark: int) -> None:
        xs = self.xs
        if x >= BELOW:
            self.done = True
        if x <= xs[-1] * ABOVE + TINY:
            x = xs[-1]  # otherwise a jump would become an extremely steep line
        # Of several points at one place only the first and last count; at offer 0 only the last.
        if x == xs[-1] and (x == 0 or (len(xs) > 1 and xs[-2] == x)):
            xs.pop(), self.fits.pop(), self.values.pop(), self.marks.pop()
        xs.append(x)
        self.fits.append(fit)
        self.values.append(value)
        self.marks.append(mark)

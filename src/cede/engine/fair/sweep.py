"""Raises children together: their curves are summed, each at the rate of its weight.

Between two bends of any of them the sum is a straight line, so only bends are visited: each adds
the slope that begins there and takes away the one that ends. The bends are put in order first and
then summed for one key after the other: a loop over plain numbers takes a third of the time of one
over vectors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from math import inf
from operator import sub, truediv

from cede.engine.fair.curve import ABOVE, AFTER, BEFORE, Curve, Vector
from cede.engine.fair.path import Path, Steps

STEEP = 1e5  # a sum from which a steeper slope was subtracted may consist of rounding errors

# What happens at a bend: the slope turns only, or the child jumps as well, and `SHOWN` says that
# the path sees the sum behind the jump.
TURN, JUMP, SHOWN = 0, 1, 2

# The point of a bend, the point before it, the way from the bend before, and what happens.
Move = tuple[int, int, float, int]


def together(curves: Sequence[Curve], ratios: Sequence[float], path: Path, improved: bool) -> None:
    """Raise children with these curves along `path`; the lightest has ratio 1."""
    points = Points(curves, ratios)
    plan = Plan(points, improved)
    if not plan.steps.ends:
        return  # all have their maximum at the start
    columns = [
        plan.column(start, values, slopes)
        for start, values, slopes in zip(path.values[-1], points.values, points.slopes, strict=True)
    ]
    path.follow(plan.steps, columns)


class Points:
    """The points of all curves, one curve after the other.

    `values` and `slopes` are by key. The slope behind a point is 0 if a jump or the end follows.
    """

    __slots__ = ("fits", "jumps", "slopes", "starts", "steep", "values")

    def __init__(self, curves: Sequence[Curve], ratios: Sequence[float]) -> None:
        xs: list[float] = []
        rows: list[Vector] = []
        rates: list[float] = []
        alike = ratios.count(1.0) == len(ratios)
        self.starts: list[int] = []
        for curve, ratio in zip(curves, ratios, strict=True):
            self.starts.append(len(xs))
            xs += curve.xs
            rows += curve.values
            if not alike:
                rates += [ratio] * len(curve.xs)
        self.fits = xs if alike else list(map(truediv, xs, rates))
        self.values: list[tuple[float, ...]] = list(zip(*rows, strict=True))
        # Nothing rises over an infinite width: at a jump, and from one curve to the next.
        widths = [width if width > 0 else inf for width in map(sub, xs[1:], xs)]
        self.slopes: list[list[float]] = []
        for column in self.values:
            if alike:
                sides = zip(column, column[1:], widths, strict=False)
                slopes = [(y - x) / width for x, y, width in sides]
            else:
                rated = zip(column, column[1:], widths, rates, strict=False)
                slopes = [(y - x) / width * rate for x, y, width, rate in rated]
            slopes.append(0.0)  # behind the last point
            self.slopes.append(slopes)
        self.jumps: set[int] = set()  # points to which a curve jumps
        if widths.count(inf) >= len(curves):
            self.jumps = {at for at, wide in enumerate(widths, 1) if wide == inf}
            self.jumps.difference_update(self.starts)
        self.steep = max(map(max, self.slopes)) > STEEP

    def child(self, at: int) -> int:
        """The child to whose curve a point belongs."""
        return bisect_right(self.starts, at) - 1


class Plan:
    """The bends of all children in order, up to a fit factor of 1.

    `steps` is what a path sees: a line to each place where any child bends, and the jumps there.
    """

    __slots__ = ("_moves", "_points", "_stretches", "steps")

    def __init__(self, points: Points, improved: bool) -> None:
        self._points = points
        order = sorted(range(len(points.fits)), key=points.fits.__getitem__)
        del order[: len(points.starts)]  # only they are at 0
        ends, firsts, groups = _places(points.fits, order)
        widths = list(map(sub, ends, [0.0, *ends]))
        self.steps = Steps([], [], set())
        self._moves: list[Move] = []
        seen = 0
        for number in groups:
            self._pass(order[firsts[seen] : firsts[number]], ends[seen:number], widths[seen:number])
            bends = sorted(order[firsts[number] : firsts[number + 1]])
            self._meet(bends, ends[number], widths[number], improved)
            seen = number + 1
        self._pass(order[firsts[seen] : firsts[-1]], ends[seen:], widths[seen:])
        self._stretches = [(points.starts, self._moves)]
        if points.steep:
            self._stretches = list(self._apart(self._moves))

    def _pass(self, bends: list[int], ends: list[float], widths: list[float]) -> None:
        """Add bends of which each is alone at its place."""
        self.steps.ends += ends
        self.steps.marks += [BEFORE] * len(ends)
        self._moves += [(at, at - 1, wide, TURN) for at, wide in zip(bends, widths, strict=True)]

    def _meet(self, bends: list[int], end: float, wide: float, improved: bool) -> None:
        """Add the bends at one place, by child; jumps are seen one by one, or all at once."""
        points, steps = self._points, self.steps
        steps.add(end, BEFORE)
        fit = points.fits[bends[0]]
        seen = [at for at in bends if at in points.jumps]
        unseen: list[int] = []
        if improved:
            for at in seen:
                steps.add(fit, points.child(at))
            if seen and points.child(bends[-1]) > points.child(seen[-1]):
                steps.stays.add(len(steps.ends) - 1)
        elif seen:
            unseen = seen[:-1]
            seen = seen[-1:]
            steps.add(fit, AFTER)
        for at in bends:
            what = SHOWN if at in seen else JUMP if at in unseen else TURN
            self._moves.append((at, at - 1, wide, what))
            wide = 0.0

    def _apart(self, moves: list[Move]) -> Iterator[tuple[list[int], list[Move]]]:
        """The moves cut where a steep slope has ended, each part with the points behind which the
        children begin it.
        """
        points = self._points
        current = points.starts
        following = list(current)
        part: list[Move] = []
        steep = False
        for move in moves:
            at, _, wide, _ = move
            if wide and steep:
                yield current, part
                current, part, steep = list(following), [], False
            part.append(move)
            following[points.child(at)] = at
            steep = steep or any(slopes[at - 1] > STEEP for slopes in points.slopes)
        yield current, part

    def column(self, value: float, values: Sequence[float], slopes: Sequence[float]) -> list[float]:
        """The sums of one key where each step ends."""
        found = []
        for current, moves in self._stretches:
            slope = sum(map(slopes.__getitem__, current))
            for at, before, wide, what in moves:
                if wide:
                    value += slope * wide
                    found.append(value)
                if what:
                    value = value + values[at] - values[before]
                    if what == SHOWN:
                        found.append(value)
                slope = slope + slopes[at] - slopes[before]
        return found


def _places(fits: list[float], order: list[int]) -> tuple[list[float], list[int], list[int]]:
    """The places at which any child bends, up to 1; where the bends at each begin in their order,
    with the end of the last; and the places with several.
    """
    ends: list[float] = []
    firsts: list[int] = []
    groups: list[int] = []
    fit = most = 0.0
    for at, point in enumerate(order):
        place = fits[point]
        if place > most:
            firsts.append(at)
            if fit >= 1:
                break
            fit = place if place < 1 else 1.0
            ends.append(fit)
            most = fit * ABOVE
        elif not groups or groups[-1] < len(ends) - 1:
            groups.append(len(ends) - 1)
    else:
        firsts.append(len(order))
    return ends, firsts, groups

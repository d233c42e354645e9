"""Draws the curve of a policy: the path along which its children are raised, over the offer.

It is fed straight lines and jumps, one by one or many at once, and knows nothing of children.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from math import inf
from operator import le, sub
from typing import Any

from cede.engine.fair.curve import (
    ABOVE,
    AFTER,
    BEFORE,
    BELOW,
    SAME,
    TINY,
    Curve,
    Vector,
    fits,
    mix,
)


@dataclass(slots=True)
class Steps:
    """Lines and jumps in order, with the fit at which each ends and the mark there; BEFORE if it is
    a line. `stays`: the jumps behind which the path stays.
    """

    ends: list[float]
    marks: list[int]
    stays: set[int]

    def add(self, end: float, mark: int) -> None:
        self.ends.append(end)
        self.marks.append(mark)

    def lines(self, ends: Sequence[float]) -> None:
        """Add lines to these places."""
        self.ends += ends
        self.marks += [BEFORE] * len(ends)


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
        needs: Iterable[float] = map(sub, value, self._guarantee)
        return max(0.0, *needs)

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

    def follow(self, steps: Steps, columns: Sequence[Sequence[float]]) -> None:
        """Go through many steps. `columns`: by key, the values where the steps end.

        It does what `line` and `jump` do for each, in less than half of the time.
        """
        values: list[Vector] = list(zip(*columns, strict=True))
        if all(map(le, map(max, columns), self._most)):
            self._follow_freely(steps, columns, values)
        else:
            self._follow_slowly(steps, values)

    def _follow_slowly(self, steps: Steps, values: Sequence[Vector]) -> None:
        """Go step by step, because the limit may cut the path."""
        before = BEFORE
        for at, (value, end, mark) in enumerate(zip(values, steps.ends, steps.marks, strict=True)):
            if mark == BEFORE:
                self.line(end, value, mark)
            else:
                self.jump(end, value, before, mark)
                if at in steps.stays:
                    self.stay()
            if self.done:
                return
            before = mark

    def _follow_freely(
        self, steps: Steps, columns: Sequence[Sequence[float]], values: Sequence[Vector]
    ) -> None:
        """Go through steps that all end within the limit: what needs no more is added at once."""
        heights, above = values, self.values[-1]  # less the guarantee
        if any(self._guarantee):
            sides = zip(columns, self._guarantee, strict=True)
            columns = [[amount - own for amount in column] for column, own in sides]
            heights = list(zip(*columns, strict=True))
            above = tuple(map(sub, above, self._guarantee))
        needs = list(map(max, repeat(0.0), *columns))
        start = self._stand(needs, steps, values)
        if start:
            above = heights[start - 1]
        x = self.xs[-1]
        xs, ends, reached, marks = self.xs, self.fits, self.values, self.marks
        every = zip(needs, heights, values, steps.ends, steps.marks, strict=True)
        for need, height, value, end, mark in islice(every, start, None):
            if mark != BEFORE:
                self._land(need, end, value, mark)
            elif x * ABOVE + TINY < need < BELOW and above[height.index(need)] >= x * BELOW:
                xs.append(need)  # one key needs the most all the way, the usual case
                ends.append(end)
                reached.append(value)
                marks.append(mark)
            else:
                self._bend(need, end, value, ends[-1])
            if self.done:
                return
            above, x = height, xs[-1]

    def _land(self, need: float, fit: float, value: Vector, mark: int) -> None:
        """Jump to a value within the limit; the mark before the jump is that of the last step."""
        x = self.xs[-1]
        if need >= BELOW:
            self.done = True
            return
        if need > x:
            self._add(need, fit, self.values[-1], self.marks[-1])
        self._add(max(need, x), fit, value, mark)

    def _stand(self, needs: Sequence[float], steps: Steps, values: Sequence[Vector]) -> int:
        """The steps that need no offer at all, of which only the last counts: their number."""
        count = 0
        if self.xs[-1] == 0:
            count = next((at for at, need in enumerate(needs) if need > TINY), len(needs))
        if count:
            self._add(0.0, steps.ends[count - 1], values[count - 1], steps.marks[count - 1])
        return count

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
        self._bend(self.needed(value), fit, value, begin, mark)

    def _bend(self, x: float, fit: float, value: Vector, begin: float, mark: int = BEFORE) -> None:
        """Go straight to `value`, with a corner wherever another key begins to need the most."""
        old = self.values[-1]
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
        lines = [(0.0, 0.0)]
        for start, end, own in zip(old, value, self._guarantee, strict=True):
            height, top = start - own, end - own
            if top >= high and height >= low:
                return []  # one key needs the most all the way, the usual case
            lines.append((height, top - height))
        turns: list[float] = []
        height, slope = max(lines)
        while True:
            nearest = (1.0, -inf, 0.0)
            for other, steeper in lines:
                if steeper > slope:
                    turn = (height - other) / (steeper - slope)
                    if turn <= nearest[0]:
                        nearest = min(nearest, (turn, -steeper, other))
            turn, slope, height = nearest
            slope = -slope
            if turn >= 1:
                return turns
            if turn > 0:
                turns.append(turn)

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

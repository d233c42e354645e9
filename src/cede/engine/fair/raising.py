"""Curves from the bottom up: of a request from its amounts, of a policy from its children.

A request is first raised to its use, all keys level, then straight to its demand. Children of a
policy are raised together, each at the rate of its weight, or in fifo one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import add, mul, sub

from cede.engine.fair.curve import ABOVE, AFTER, BEFORE, Curve, Path, Vector, plus, smaller
from cede.engine.fair.tree import Element, Mode

STEEP = 1e5  # a sum from which a steeper slope was subtracted may consist of rounding errors


class Node:
    """An element with its results so far. Changed in place; private to this package."""

    __slots__ = (
        "after", "children", "curve", "demand", "drawn_with", "element", "integral", "limit",
        "offer", "order", "parent", "ratio", "redrawn", "stale", "strong", "total", "usage",
    )  # fmt: skip

    def __init__(self, element: Element, parent: Node | None, limit: Vector) -> None:
        zero = (0.0,) * len(limit)
        self.element = element
        self.parent = parent
        self.children: list[Node] = []
        self.order: list[Node] = self.children  # in the order of service
        self.limit = limit
        self.strong = zero
        self.integral = zero
        self.demand: Sequence[float] = zero  # amounts
        self.usage: Sequence[float] = zero
        self.ratio = 1.0  # its weight over the least among its siblings
        self.curve = Curve([0.0], [zero])
        self.stale = True  # the curve is older than its inputs
        self.redrawn = True  # the curve is newer than the shares handed down
        self.drawn_with = zero  # the guarantee in the curve
        self.offer = -1.0  # the last offer, and (`after`) its side of a jump
        self.after = False
        self.total = zero

    @property
    def guarantee(self) -> Vector:
        return plus(self.strong, self.integral)

    def ancestors(self) -> Iterator[Node]:
        """The node itself and all nodes above it, the root last."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def mark_stale(self) -> None:
        for node in self.ancestors():
            node.stale = True


def request_curve(usage: Vector, demand: Vector, limit: Vector, at_once: bool) -> Curve:
    zero = (0.0,) * len(limit)
    path = Path(zero, zero, limit)
    if at_once:
        if any(demand):
            path.jump(1.0, demand, BEFORE, AFTER)
        return path.curve()
    for level in sorted({*usage}):
        if level and not path.done:
            path.line(level, tuple([min(level, used) for used in usage]), BEFORE)
    if demand != usage and not path.done:
        path.line(2.0, demand, BEFORE)
    return path.curve()


def policy_curve(node: Node, guarantee: Vector, limit: Vector, improved: bool) -> Curve:
    """The curve of a policy; its children's curves must be fresh."""
    start = (0.0,) * len(limit)
    for child in node.children:
        start = plus(start, child.curve.values[0])
    # Rounding aside, children within their guarantees are within their parent's.
    path = Path(smaller(start, limit), guarantee, limit)
    if not node.children:
        return path.curve()
    if node.element.mode is Mode.FIFO:
        _one_after_the_other(node.order, path)
    else:
        _together(node.children, path, improved)
    return path.curve()


def _one_after_the_other(order: Sequence[Node], path: Path) -> None:
    """Raise children in turn. A mark is twice the place in the order, plus one after a jump."""
    path.marks[0] = 0
    for place, child in enumerate(order):
        path.stay()  # behind its jump the previous child completes its turn
        curve = child.curve
        base = tuple([a - b for a, b in zip(path.values[-1], curve.values[0], strict=True)])
        for at in range(1, len(curve.xs)):
            value = plus(base, curve.values[at])
            begin, end = curve.xs[at - 1], curve.xs[at]
            if begin == end:
                path.jump(end, value, 2 * place, 2 * place + 1)
            else:
                path.line(end, value, 2 * place, begin)
            if path.done:
                return


def _together(children: Sequence[Node], path: Path, improved: bool) -> None:
    """Raise children together: sweep over the bends of their curves with the sum and its slope."""
    places = [
        (x / child.ratio, index, at)
        for index, child in enumerate(children)
        for at, x in enumerate(child.curve.xs)
        if at
    ]
    places.sort()
    places.append((1.0, -1, 0))  # the end, for children too light to reach a later bend
    steepness = [child.curve.steepness(child.ratio) for child in children]
    slopes = [each[0] for each in steepness]
    slope = [sum(column) for column in zip(*slopes, strict=True)]
    fit, at, end = 0.0, 0, len(places)
    while at < end and fit < 1:
        target, index, point = places[at]
        if target > 1:
            target = 1.0
        wide = target - fit
        if wide > 0:
            value = tuple(map(add, path.values[-1], map(mul, slope, repeat(wide))))
            path.line(target, value, BEFORE)
            fit = target
            if path.done:
                return
        stop = at + 1
        most = target * ABOVE
        while stop < end and places[stop][0] <= most:
            stop += 1
        # A jump has two points at one place, except at the start, whose point is not listed.
        if stop - at > 1 or (point == 1 and _jumps(children, index, point)):
            group = sorted(places[at:stop], key=_by_child)
            _bend(children, path, group, steepness, slopes, slope, improved)
            if path.done:
                return
        elif index >= 0 and _turn(index, steepness[index][point], slopes, slope):
            slope = [sum(column) for column in zip(*slopes, strict=True)]
        at = stop


def _by_child(place: tuple[float, int, int]) -> tuple[int, int]:
    return place[1], place[2]


def _jumps(children: Sequence[Node], index: int, at: int) -> bool:
    """Whether a child jumps at this point of its curve."""
    xs = children[index].curve.xs
    return index >= 0 and xs[at] == xs[at - 1]


def _turn(index: int, new: Vector, slopes: list[Vector], slope: list[float]) -> bool:
    """Change a child's slope in the sum; return whether the sum must be computed again."""
    old, slopes[index] = slopes[index], new
    if old is not new:
        slope[:] = map(sub, map(add, slope, new), old)
    return max(old) > STEEP


def _bend(
    children: Sequence[Node],
    path: Path,
    group: Sequence[tuple[float, int, int]],
    steepness: Sequence[list[Vector]],
    slopes: list[Vector],
    slope: list[float],
    improved: bool,
) -> None:
    """Process the points at one place: jumps, one by one or all at once, then the new slope."""
    fit = group[0][0]
    jumped = path.values[-1]
    mark = BEFORE
    steep = False
    for _, index, at in group:
        if index < 0:
            continue
        if _jumps(children, index, at):
            values = children[index].curve.values
            jumped = tuple(
                [a + c - b for a, b, c in zip(jumped, values[at - 1], values[at], strict=True)]
            )
            if improved:
                path.jump(fit, jumped, mark, index)
                mark = index
                if path.done:
                    return
        steep = _turn(index, steepness[index][at], slopes, slope) or steep
    if steep:
        slope[:] = [sum(column) for column in zip(*slopes, strict=True)]
    if not improved and jumped is not path.values[-1]:
        path.jump(fit, jumped, BEFORE, AFTER)
    if mark != BEFORE and any(index > mark for _, index, _ in group):
        path.stay()  # a later child has its turn at the same place, behind the jump


def set_ratios(children: Sequence[Node]) -> None:
    least = min((each.element.weight for each in children if each.element.weight > 1e-9), default=1)
    for child in children:
        child.ratio = child.element.weight / least

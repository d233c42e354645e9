"""Curves from the bottom up: of a request from its amounts, of a policy from its children.

A request is first raised to its use, all keys level, then straight to its demand. Children of a
policy are raised together, each at the rate of its weight, or in fifo one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise, repeat
from operator import le

from cede.engine.fair.curve import (
    ABOVE,
    AFTER,
    BEFORE,
    BELOW,
    TINY,
    Curve,
    Vector,
    plus,
    smaller,
    zeros,
)
from cede.engine.fair.path import Path
from cede.engine.fair.sweep import together
from cede.engine.fair.tree import Element, Kind, Mode

NO_CHILDREN: list[Node] = []  # of every request; nothing is ever added


class Node:
    """An element with its results so far. Changed in place; private to this package."""

    __slots__ = (
        "after", "children", "curve", "demand", "dominant", "drawn_with", "element", "integral",
        "is_policy", "limit", "offer", "order", "parent", "ratio", "redrawn", "stale", "strong",
        "total", "usage", "uses", "wants",
    )  # fmt: skip

    def __init__(self, element: Element, parent: Node | None, limit: Vector) -> None:
        zero = zeros(len(limit))
        self.element = element
        self.parent = parent
        self.is_policy = element.kind is Kind.POLICY
        self.children: list[Node] = [] if self.is_policy else NO_CHILDREN
        self.order: list[Node] = self.children  # in the order of service
        self.limit = limit
        self.strong = zero
        self.integral = zero
        self.demand: Sequence[float] = zero  # amounts
        self.usage: Sequence[float] = zero
        self.wants = zero  # the parts of the whole; of a request
        self.uses = zero
        self.dominant = ""
        self.ratio = 1.0  # its weight over the least among its siblings
        self.curve: Curve  # set when it is drawn
        self.stale = True  # the curve is older than its inputs
        self.redrawn = True  # the curve is newer than the shares handed down
        self.drawn_with = zero  # the guarantee in the curve
        self.offer = -1.0  # the last offer, and (`after`) its side of a jump
        self.after = False
        self.total = zero

    @property
    def guarantee(self) -> Vector:
        return plus(self.strong, self.integral) if any(self.integral) else self.strong

    def ancestors(self) -> Iterator[Node]:
        """The node itself and all nodes above it, the root last."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def mark_stale(self) -> None:
        for node in self.ancestors():
            node.stale = True


@cache
def flat(keys: int) -> Curve:
    """The one curve of all elements of which nothing is wanted, for a number of keys."""
    return Curve([0.0], [zeros(keys)], [0.0], [AFTER])


def request_curve(usage: Vector, demand: Vector, limit: Vector, at_once: bool) -> Curve:
    """The curve of a request. Nothing is handed down from it, so it has neither fits nor marks."""
    if not any(demand):
        return flat(len(limit))
    straight = None if at_once else _straight_curve(usage, demand, limit)
    if straight is not None:
        return straight
    zero = zeros(len(limit))
    path = Path(zero, zero, limit)
    if at_once:
        path.jump(1.0, demand, BEFORE, AFTER)
        return Curve(path.xs, path.values)
    for level in sorted({*usage}):
        if level and not path.done:
            path.line(level, tuple([min(level, used) for used in usage]), BEFORE)
    if demand != usage and not path.done:
        path.line(2.0, demand, BEFORE)
    return Curve(path.xs, path.values)


def _straight_curve(usage: Vector, demand: Vector, limit: Vector) -> Curve | None:
    """The curve that a path would draw if the limit does not bind and one key leads from the use to
    the demand, as in almost every request; None of any other. It takes a third of the time.
    """
    most = max(demand)
    if most >= BELOW or not all(map(le, demand, limit)):
        return None
    last, nothing = 0.0, zeros(len(limit))
    xs, values = [last], [nothing]
    for level in sorted({*usage}.difference(nothing)):
        if level <= last * ABOVE + TINY:
            return None
        xs.append(level)
        values.append(tuple(map(min, usage, repeat(level))))
        last = level
    if demand != usage:
        if most <= last * ABOVE + TINY or usage[demand.index(most)] < last * BELOW:
            return None
        xs.append(most)
        values.append(demand)
    return Curve(xs, values)


def policy_curve(node: Node, guarantee: Vector, limit: Vector, improved: bool) -> Curve:
    """The curve of a policy; its children's curves must be fresh."""
    nothing = flat(len(limit))
    curves = [child.curve for child in node.children]
    wanting = len(curves) - curves.count(nothing)
    if not wanting:
        return nothing
    if wanting == 1 and (curve := _curve_of_only(node, guarantee, limit, improved)) is not None:
        return curve
    start = tuple(map(sum, zip(*[curve.values[0] for curve in curves], strict=True)))
    # Rounding aside, children within their guarantees are within their parent's.
    path = Path(smaller(start, limit), guarantee, limit)
    if node.element.mode is Mode.FIFO:
        _one_after_the_other(node.order, path)
    else:
        together(curves, [child.ratio for child in node.children], path, improved)
    return path.curve()


def _curve_of_only(node: Node, guarantee: Vector, limit: Vector, improved: bool) -> Curve | None:
    """The curve of a policy with one child of which anything is wanted, if it is that of the child
    at other fit factors, as without a guarantee and within the limit; None otherwise.
    """
    if any(guarantee) or node.element.mode is Mode.FIFO:
        return None
    nothing = flat(len(limit))
    place, child = next(
        (place, each) for place, each in enumerate(node.children) if each.curve is not nothing
    )
    curve = child.curve
    if any(child.drawn_with) or child.ratio < 1 or not all(map(le, curve.top, limit)):
        return None
    xs, mark = curve.xs, place if improved else AFTER
    marks = [AFTER, *[mark if x == was else BEFORE for was, x in pairwise(xs)]]
    fits = xs if child.ratio == 1 else [x / child.ratio for x in xs]
    return Curve(xs, curve.values, fits, marks)


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


def set_ratios(children: Sequence[Node]) -> None:
    weights = [each.element.weight for each in children]
    least = min(weights, default=1.0)
    if not least > 1e-9:
        least = min([weight for weight in weights if weight > 1e-9], default=1.0)
    for child, weight in zip(children, weights, strict=True):
        child.ratio = 1.0 if weight == least else weight / least  # one number for most

"""Hands the share of a policy down to its children.

Only elements with a changed offer or a redrawn curve are visited.
"""

from __future__ import annotations

from cede.engine.fair.curve import AFTER, BEFORE, Vector
from cede.engine.fair.raising import Node
from cede.engine.fair.tree import Mode


def hand_down(node: Node, fit: float, mark: int, changed: list[Node]) -> None:
    """Raise the children of `node` to a fit factor; `changed` collects those with a new share."""
    for child, offer, after in _offers(node, fit, mark):
        curve = child.curve
        if not child.redrawn:
            if offer == child.offer and after == child.after:
                continue
            if offer > curve.enough and child.offer > curve.enough:
                continue  # it has its maximum, as before
        if offer > curve.enough:  # as most have
            at, part, value = -1, 0.0, curve.top
        else:
            at, part = curve.find(offer, after)
            value = curve.between(at, part)
        child.offer, child.after = offer, after
        is_new = value != child.total
        if is_new:
            child.total = value
            changed.append(child)
        # If it has nothing, as before, so has all below it.
        if child.children and (is_new or (child.redrawn and any(value))):
            hand_down(child, *_place(child, at, part), changed)
        child.redrawn = False


def _offers(node: Node, fit: float, mark: int) -> list[tuple[Node, float, bool]]:
    """The offer to each child, and whether the child stands behind a jump there."""
    if node.element.mode is Mode.FIFO:
        turn, after = mark >> 1, bool(mark & 1)
        return [
            (child, fit, after) if place == turn else (child, 1.0 if place < turn else 0.0, False)
            for place, child in enumerate(node.order)
        ]
    if mark in (BEFORE, AFTER):
        after = mark == AFTER
        return [(child, min(1.0, fit * child.ratio), after) for child in node.children]
    return [
        (child, min(1.0, fit * child.ratio), index <= mark)
        for index, child in enumerate(node.children)
    ]


def _place(node: Node, at: int, part: float) -> tuple[float, int]:
    """The fit factor and mark of the children at a point of their policy's curve."""
    curve = node.curve
    fit, mark = curve.fits[at], curve.marks[at]
    if not part:
        return fit, mark
    start = curve.fits[at - 1]
    if node.element.mode is Mode.FIFO and curve.marks[at - 1] >> 1 != mark >> 1:
        start = 0.0  # the line begins with the next child's turn
    return start + (fit - start) * part, mark


def promised(root: Node) -> dict[str, Vector]:
    """The shares of elements within guarantees, below each topmost policy with `promises`."""
    found: dict[str, Vector] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.element.promises:
            _promise(node, 0.0, True, found)
        else:
            waiting += [each for each in node.children if each.is_policy]
    return found


def _promise(node: Node, offer: float, after: bool, found: dict[str, Vector]) -> None:
    at, part = node.curve.find(offer, after)
    found[node.element.id] = node.curve.between(at, part)
    if node.is_policy:
        for child, its_offer, its_side in _offers(node, *_place(node, at, part)):
            _promise(child, its_offer, its_side, found)

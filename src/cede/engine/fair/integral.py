"""Guarantees over time: volumes that fill and are used up, and the shares that they give now.

A burst policy takes the share that its volume allows as if it were guaranteed. Relaxed policies
then share, by volume, the rest that guarantees leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cede.engine.fair.curve import Vector, fits, minus, plus, smaller
from cede.engine.fair.guarantees import top_ratio
from cede.engine.fair.raising import Node, policy_curve
from cede.engine.fair.tree import NO_VOLUME, IntegralType, Numbers, Options, Volume
from cede.model.copying import replace

Volumes = Mapping[str, Volume]
TINY = 1e-9
HALVINGS = 80


def integral_nodes(root: Node) -> list[Node]:
    """Policies with an integral guarantee, parents before children, in the order of the tree."""
    return [node for node in _policies(root) if _type(node) is not IntegralType.NONE]


def _policies(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        if child.is_policy:
            yield from _policies(child)


def _type(node: Node) -> IntegralType:
    return node.element.integral.type


# Volumes


@dataclass(slots=True)
class _Flow:
    """One policy while volumes are filled; amounts x seconds by key."""

    spilt: dict[str, float] = field(default_factory=dict)  # overflow of its children
    spill: dict[str, float] = field(default_factory=dict)  # overflow that goes on to its parent
    room: dict[str, float] = field(default_factory=dict)
    ratio: float = 0.0  # of its flow, with its children's


def fill(
    root: Node, volumes: Volumes, totals: Numbers, options: Options, seconds: float
) -> dict[str, Volume]:
    """Volumes after so many seconds: with the flow in, the last share out, the overflow spread."""
    filled: dict[str, Volume] = {}
    flows: dict[str, _Flow] = {}
    for node in integral_nodes(root):
        old = volumes.get(node.element.id, NO_VOLUME)
        flow = flows[node.element.id] = _Flow(ratio=top_ratio(node.element.integral.flow, totals))
        saved = {}
        for key, total in totals.items():
            before = old.saved.get(key, 0.0)
            capacity = total * flow.ratio * options.saturation
            grown = max(0.0, before + total * seconds * (flow.ratio - old.last_share))
            most = max(before, capacity)
            saved[key] = min(grown, most)
            flow.spill[key] = max(0.0, grown - most)
            accepts = node.element.integral.accepts_free_volume
            flow.room[key] = max(0.0, capacity - grown) if accepts else 0.0
        filled[node.element.id] = Volume(saved, old.last_share)
    if any(any(flow.spill.values()) for flow in flows.values()):
        _collect(root, flows, totals)
        _spread(root, dict.fromkeys(totals, 0.0), flows, filled)
    return filled


def _collect(node: Node, flows: dict[str, _Flow], totals: Numbers) -> None:
    """Sum up overflow that is not taken in below, and room for it, from the leaves up."""
    if _type(node) is not IntegralType.NONE:
        return
    flow = flows[node.element.id] = _Flow()
    room = dict.fromkeys(totals, 0.0)
    flow.spilt = dict.fromkeys(totals, 0.0)
    for child in node.children:
        if not child.is_policy:
            continue
        _collect(child, flows, totals)
        below = flows[child.element.id]
        flow.ratio += below.ratio
        for key in totals:
            flow.spilt[key] += below.spill[key]
            room[key] += below.room[key]
    accepts = node.element.integral.accepts_free_volume
    for key in totals:
        flow.spill[key] = max(0.0, flow.spilt[key] - room[key])
        flow.room[key] = max(0.0, room[key] - flow.spilt[key]) if accepts else 0.0


def _spread(
    node: Node, free: dict[str, float], flows: dict[str, _Flow], filled: dict[str, Volume]
) -> None:
    """Spread free volume from the root down to policies with room for it."""
    if _type(node) is not IntegralType.NONE:
        old = filled[node.element.id]
        saved = {key: amount + free[key] for key, amount in old.saved.items()}
        filled[node.element.id] = replace(old, saved=saved)
        return
    policies = [each for each in node.children if each.is_policy]
    parts = {each.element.id: dict.fromkeys(free, 0.0) for each in policies}
    if node.element.integral.spreads_free_volume:
        for key, amount in free.items():
            hungry = {
                each.element.id: flows[each.element.id]
                for each in policies
                if flows[each.element.id].room[key] > TINY and flows[each.element.id].ratio > TINY
            }
            for element_id, part in _pour(amount + flows[node.element.id].spilt[key], key, hungry):
                parts[element_id][key] = part
    for each in policies:
        _spread(each, parts[each.element.id], flows, filled)


def _pour(amount: float, key: str, hungry: dict[str, _Flow]) -> Iterator[tuple[str, float]]:
    """Parts of an amount in proportion to flow, never above the room; the policy that is full
    first comes first.
    """
    weight = sum(flow.ratio for flow in hungry.values())
    for element_id in sorted(hungry, key=lambda each: hungry[each].room[key] / hungry[each].ratio):
        flow = hungry[element_id]
        part = min(amount * flow.ratio / weight, flow.room[key])
        amount -= part
        weight -= flow.ratio
        yield element_id, part


def _volume_ratio(volume: Volume, totals: Numbers, options: Options) -> float:
    parts = [volume.saved.get(key, 0.0) / total for key, total in totals.items() if total]
    return min(parts, default=0.0) / options.smooth


# Shares


@dataclass(frozen=True, slots=True)
class Setting:
    """The inputs from which the shares of volumes are computed."""

    totals: Numbers
    options: Options
    burst_factor: float
    draw_below: Callable[[Node], None]  # makes the curves of a policy's children fresh


def assign(
    root: Node, nodes: Sequence[Node], volumes: Volumes, setting: Setting
) -> dict[str, Volume]:
    """Give every policy its integral share; return the volumes with the share that each gave."""
    zero = (0.0,) * len(root.limit)
    above = {node.element.id: node for each in nodes for node in each.ancestors()}
    for node in above.values():
        node.integral = zero
    nested = [
        each
        for each in nodes
        if any(_type(one) is not IntegralType.NONE for one in each.ancestors() if one is not each)
    ]
    for node in nested:
        node.mark_stale()
    given = dict(volumes)
    ratios = {
        each.element.id: _volume_ratio(volumes[each.element.id], setting.totals, setting.options)
        for each in nodes
    }
    for node in nodes:
        if _type(node) is IntegralType.BURST:
            _burst(node, ratios[node.element.id], given, setting)
    relaxed = [each for each in nodes if _type(each) is IntegralType.RELAXED]
    _relax(root, relaxed, ratios, given, setting)
    for node in above.values():
        if node.drawn_with != node.guarantee:
            node.mark_stale()
    return given


def _headroom(node: Node) -> Vector:
    """The share that a policy and those above it, but the root, may still be guaranteed within
    their limits.
    """
    room = (1.0,) * len(node.limit)
    for each in node.ancestors():
        if each.parent is not None:
            room = smaller(room, minus(each.limit, each.guarantee))
    return room


def _give(node: Node, share: Vector, given: dict[str, Volume]) -> None:
    for each in node.ancestors():
        each.integral = plus(each.integral, share)
        if each.parent is not None:
            each.integral = smaller(each.integral, minus(each.limit, each.strong))
    given[node.element.id] = replace(given[node.element.id], last_share=max(share, default=0.0))


def _burst(node: Node, ratio: float, given: dict[str, Volume], setting: Setting) -> None:
    burst = top_ratio(node.element.integral.burst, setting.totals) * setting.burst_factor
    proposed = smaller((min(burst, ratio),) * len(node.limit), _headroom(node))
    setting.draw_below(node)
    guarantee = plus(node.strong, proposed)
    curve = policy_curve(node, guarantee, node.limit, setting.options.improved)
    _give(node, minus(curve.values[0], node.strong), given)


def _relax(
    root: Node,
    nodes: Sequence[Node],
    ratios: Mapping[str, float],
    given: dict[str, Volume],
    setting: Setting,
) -> None:
    free = (1.0,) * len(root.limit)
    for child in root.children:
        demand = [
            amount / total if total else 0.0
            for amount, total in zip(child.demand, setting.totals.values(), strict=True)
        ]
        free = tuple(
            [
                room - min(own, wants)
                for room, own, wants in zip(free, child.guarantee, demand, strict=True)
            ]
        )
    free = tuple([max(0.0, room) for room in free])
    curves = []
    for node in nodes:
        ratio = ratios[node.element.id]
        if ratio <= 0:
            given[node.element.id] = replace(given[node.element.id], last_share=0.0)
            continue
        kind = node.element.integral
        most = min(ratio, kind.multiplier * top_ratio(kind.flow, setting.totals))
        limit = smaller(node.limit, tuple([own + most for own in node.strong]))
        setting.draw_below(node)
        curves.append(
            (node, ratio, policy_curve(node, node.strong, limit, setting.options.improved))
        )
    if not curves:
        return
    least = min(ratio for _, ratio, _ in curves)

    def at(fit: float) -> list[Vector]:
        return [
            minus(curve.left(min(1.0, fit * ratio / least)), node.strong)
            for node, ratio, curve in curves
        ]

    shares = at(_largest(at, free))
    for (node, _, _), share in zip(curves, shares, strict=True):
        _give(node, smaller(share, _headroom(node)), given)


def _largest(at: Callable[[float], list[Vector]], free: Vector) -> float:
    """The largest fit factor at which all together take no more than is free."""

    def good(fit: float) -> bool:
        return fits(tuple(map(sum, zip(*at(fit), strict=True))), free)

    if good(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if good(middle) else (low, middle)
    return low

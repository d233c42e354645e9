"""Effective guarantees: inferred where none is set, reduced where they promise too much.

They depend on policies and totals alone, never on demand, so requests do not change them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cede.engine.fair.curve import Vector, smaller, times
from cede.engine.fair.tree import ROOT, Element, IntegralType, Kind, Numbers, Tree

Children = Mapping[str, Sequence[Element]]


def as_share(amounts: Numbers, totals: Numbers) -> Vector:
    """The parts of the whole; 0 of a key without a total."""
    get = amounts.get
    return tuple([get(key, 0) / total if total else 0.0 for key, total in totals.items()])


def limit_share(limit: Numbers, totals: Numbers) -> Vector:
    get = limit.get
    return tuple(
        [min(get(key, total), total) / total if total else 0.0 for key, total in totals.items()]
    )


def top_ratio(amounts: Numbers, totals: Numbers) -> float:
    return max(as_share(amounts, totals), default=0.0)


def infer(tree: Tree, children: Children, main: str) -> dict[str, dict[str, float]]:
    """The guarantee, in every key, of each policy that sets any below others that do: as set, else
    in proportion to the main key. Nothing is guaranteed to any other.

    Below the root inferred amounts never promise more than the parent has left in a key.
    """
    inferred: dict[str, dict[str, float]] = {ROOT: dict(tree.totals)}
    waiting = [ROOT]
    while waiting:
        parent = waiting.pop()
        policies = [each for each in children[parent] if _promises(each)]
        if not policies:  # true of most
            continue
        waiting += [each.id for each in policies]
        own = inferred[parent]
        for child in policies:
            inferred[child.id] = {key: child.guarantee.get(key, 0.0) for key in tree.totals}
        for key in tree.totals:
            if key == main:
                continue
            silent = [each.id for each in policies if key not in each.guarantee]
            rate = own[key] / own[main] if own.get(main) else 0.0
            if not rate:
                continue
            if parent != ROOT:
                wanted = sum([inferred[each][main] * rate for each in silent])
                left = max(0.0, own[key] - sum([each.guarantee.get(key, 0.0) for each in policies]))
                if wanted > left:
                    rate *= left / wanted
            for each in silent:
                inferred[each][key] = inferred[each][main] * rate
    return inferred


def shrink(
    tree: Tree, children: Children, wanted: Mapping[str, Vector]
) -> tuple[dict[str, Vector], float]:
    """Strong guarantees that fit, of the policies in `wanted`, each behind the one above it; and
    the factor that burst guarantees are cut by.

    The children of each policy are cut by one factor for all keys, so that their guarantees keep
    their proportions.
    """
    zero = (0.0,) * len(tree.totals)
    top = _sum([wanted[each.id] for each in children[ROOT] if each.id in wanted], zero)
    burst = IntegralType.BURST
    bursts = sum(
        top_ratio(each.integral.burst, tree.totals)
        for each in tree.elements
        if each.integral.type is burst
    )
    factor = min([1.0, *[1 / (own + bursts) for own in top if own + bursts > 1]])
    strong = {ROOT: smaller(times(top, factor), limit_share({}, tree.totals))}
    for parent in wanted:
        below = [each for each in children[parent] if each.id in wanted]
        if not below:
            continue
        asked = _sum([wanted[each.id] for each in below], zero)
        pairs = zip(strong[parent], asked, strict=True)
        most = min([1.0, *[has / ask for has, ask in pairs if ask > has]])
        for each in below:
            share = times(wanted[each.id], most) if most < 1 else wanted[each.id]
            strong[each.id] = smaller(share, limit_share(each.limit, tree.totals))
    return strong, factor


def _promises(element: Element) -> bool:
    return element.kind is Kind.POLICY and any(element.guarantee.values())


def _sum(many: Iterable[Vector], zero: Vector) -> Vector:
    return tuple(map(sum, zip(zero, *many, strict=True)))

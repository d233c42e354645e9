"""Fair shares straight from their definition, slowly: the oracle of the properties.

No curves: every function is evaluated where it is asked for, and a policy's largest fit factor is
found by halving. It shares no code with what it checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from cede.engine.fair.tree import Element, Kind, Mode, Tree

HALVINGS = 40
SLACK = 1e-11
# What needs the whole offer, to the last bit, is not reached: as little less than everything as is
# more than the slack, and less than what anybody compares.
EVERYTHING = 1 - 1e-9


@dataclass(frozen=True)
class Literal:
    tree: Tree
    guarantees: dict[str, tuple[float, ...]]
    gangs: bool = False

    @cached_property
    def below(self) -> dict[str, list[Element]]:
        found: dict[str, list[Element]] = {"": []} | {each.id: [] for each in self.tree.elements}
        for each in self.tree.elements:
            found[each.parent].append(each)
        for each in self.tree.elements:
            if each.mode is Mode.FIFO:
                found[each.id].sort(key=lambda child: (-child.weight, child.submitted))
        return found

    @cached_property
    def amounts(self) -> dict[str, tuple[list[float], list[float], list[float]]]:
        """Usage, demand and limit of everybody, as shares."""
        totals = self.tree.totals.items()
        return {
            each.id: (
                [each.usage.get(key, 0) / total for key, total in totals],
                [each.demand.get(key, 0) / total for key, total in totals],
                [min(1.0, each.limit.get(key, total) / total) for key, total in totals],
            )
            for each in (Element("", Kind.POLICY), *self.tree.elements)
        }

    def raised(self, element: Element, fit: float) -> list[float]:
        """What it takes at a fit factor."""
        if element.kind is Kind.REQUEST:
            return self._request(element, fit)
        children = self.below[element.id]
        total = [0.0] * len(self.tree.totals)
        least = min((each.weight for each in children), default=1.0)
        for place, child in enumerate(children):
            offer = fit * child.weight / least
            if element.mode is Mode.FIFO:
                offer = fit - place
            given = self.taken(child, min(1.0, max(0.0, offer)))
            total = [a + b for a, b in zip(total, given, strict=True)]
        return total

    def _request(self, element: Element, fit: float) -> list[float]:
        usage, demand, _ = self.amounts[element.id]
        if self.gangs and element.gang:
            return demand if fit > 1 else [0.0] * len(demand)
        if fit <= 1:
            return [min(each, fit * max(usage)) for each in usage]
        return [a + (b - a) * (fit - 1) for a, b in zip(usage, demand, strict=True)]

    def fit(self, element: Element, offer: float) -> float:
        """The largest fit factor at which no key exceeds guarantee + offer, nor the limit."""
        own = self.guarantees[element.id]
        most = [
            min(guarantee + offer, limit)
            for guarantee, limit in zip(own, self.amounts[element.id][2], strict=True)
        ]
        if element.kind is Kind.REQUEST:
            return self._request_fit(element, most, offer)
        top = 1.0
        if element.mode is Mode.FIFO:
            top = float(max(1, len(self.below[element.id])))

        def good(fit: float) -> bool:
            return all(a <= b + SLACK for a, b in zip(self.raised(element, fit), most, strict=True))

        return _largest(good, top)

    def _request_fit(self, element: Element, most: list[float], offer: float) -> float:
        usage, demand, limit = self.amounts[element.id]
        if self.gangs and element.gang:
            # The value at a jump is the one before it, so that the offer must be passed; with the
            # slack that a policy has, or a gang below a policy would jump before its equal beside.
            # More than everything is never offered.
            is_allowed = all(a <= b for a, b in zip(demand, limit, strict=True))
            return 2.0 if is_allowed and max(demand) < min(offer + SLACK, 1.0) else 1.0
        low = [room / max(usage) for used, room in zip(usage, most, strict=True) if used > room]
        if low:
            return min(low)
        every = zip(usage, demand, most, strict=True)
        return 1 + min([1.0, *[(room - a) / (b - a) for a, b, room in every if b > room]])

    def taken(self, element: Element, offer: float) -> list[float]:
        return self.raised(element, self.fit(element, offer))

    def shares(self) -> dict[str, list[float]]:
        root = Element("", Kind.POLICY)
        found: dict[str, list[float]] = {}
        self._give(root, EVERYTHING, found)
        return found

    def _give(self, element: Element, offer: float, found: dict[str, list[float]]) -> None:
        fit = self.fit(element, offer)
        found[element.id] = self.raised(element, fit)
        if element.kind is Kind.REQUEST:
            return
        children = self.below[element.id]
        least = min((each.weight for each in children), default=1.0)
        for place, child in enumerate(children):
            its = fit - place if element.mode is Mode.FIFO else fit * child.weight / least
            self._give(child, min(1.0, max(0.0, its)), found)


def _largest(good: Callable[[float], bool], top: float) -> float:
    if good(top):
        return top
    low, high = 0.0, top
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if good(middle) else (low, middle)
    return low

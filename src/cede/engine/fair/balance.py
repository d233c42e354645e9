"""How evenly the fair shares of a pool are used: the order of takings under fair share.

An element is a policy, or the work that a policy has of its own beside the policies below it. Its
level of use is what it holds over its entitlement: the fair share that follows from demands with
nobody holding anything, so that no taking moves it. For every level of the tree the levels of use
stand in a list, the lowest first; the balance is these lists from the top of the tree down. A
taking must raise it, compared number by number. Entitlements stand still while takings go on and
there are only so many states, so takings end.

It knows nothing of time, requests and nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from cede.model.amounts import Amounts, add_to, take_from

# Levels of use that differ by less are equal: they are quotients of the same numbers.
_DIGITS = 9

NOTHING: Amounts = {}

Entitlements = Mapping[str, Mapping[str, float]]


def own_work(policy_id: str) -> str:
    """The element that stands for a policy's own work beside the policies below it."""
    return f"{policy_id}/"


class Balance:
    """What every element of one pool uses, and is entitled to."""

    def __init__(self, chains: Mapping[str, tuple[str, ...]]) -> None:
        """`chains`: each policy with those above it, from the lowest up."""
        above = {each for chain in chains.values() for each in chain[1:]}
        # The elements that count a policy's own holdings, from the top down.
        self.paths = {
            policy_id: (*reversed(chain), *([own_work(policy_id)] if policy_id in above else ()))
            for policy_id, chain in chains.items()
        }
        self.entitled: Entitlements = {}
        self._used: dict[str, dict[str, int]] = {
            each: {} for path in self.paths.values() for each in path
        }

    def hold(self, policy_id: str, amounts: Amounts) -> None:
        for each in self.paths[policy_id]:
            add_to(self._used[each], amounts)

    def let_go(self, policy_id: str, amounts: Amounts) -> None:
        for each in self.paths[policy_id]:
            take_from(self._used[each], amounts)

    def level(self, element: str, more: Amounts = NOTHING, less: Amounts = NOTHING) -> float:
        """The largest part of its entitlement that an element uses of any key, with so much more
        and less of it; without bound where it is entitled to nothing.
        """
        entitled, used = self.entitled.get(element), self._used[element]
        if entitled is None:  # it wanted nothing when entitlements were computed
            return inf if used or more else 0.0
        found = [
            (used.get(key, 0) + more.get(key, 0) - less.get(key, 0)) / due
            for key, due in entitled.items()
            if due > 0
        ]
        return round(max(found), _DIGITS) if found else inf

    def levels(self, policy_id: str) -> tuple[float, ...]:
        """The levels of use from the top of the tree down to a policy: the lower, the sooner it is
        served.
        """
        return tuple([self.level(each) for each in self.paths[policy_id]])

    def use(self, policy_id: str) -> float:
        """The level of use of a policy's own work."""
        return self.level(self.paths[policy_id][-1])

    def may_lose(self, policy_id: str, amounts: Amounts, beneficiary: str) -> bool:
        """Whether a policy that gives so much back stays above where the beneficiary's stands."""
        left = self.level(self.paths[policy_id][-1], less=amounts)
        return left > self.use(beneficiary)

    def rises(self, beneficiary: str, demand: Amounts, away: Mapping[str, Amounts]) -> bool:
        """Whether the balance rises if a policy gets so much and others, by policy, give so much
        back; never for who is entitled to nothing.
        """
        return self.use(beneficiary) != inf and self._change(beneficiary, demand, away) > 0

    def stays(self, policy_id: str, demand: Amounts, away: Amounts) -> bool:
        """Whether the balance does not fall if work of a policy gets so much and other work of it
        gives so much back: what falls may be raised again, and so on for ever.
        """
        return self._change(policy_id, demand, {policy_id: away}) >= 0

    def _change(self, beneficiary: str, demand: Amounts, away: Mapping[str, Amounts]) -> int:
        """Whether the balance rises (1), falls (-1) or stays as it is."""
        less = self._by_element(away.items())
        more = dict.fromkeys(self.paths[beneficiary], demand)
        deepest = max(len(path) for path in (*map(self.paths.__getitem__, away), more))
        for depth in range(deepest):
            moved = {
                path[depth]: None
                for path in map(self.paths.__getitem__, (beneficiary, *away))
                if len(path) > depth
            }
            # Of two sorted lists, what is equal in both does not decide which is higher.
            before = sorted(self.level(each) for each in moved)
            after = sorted(
                self.level(each, more.get(each, NOTHING), less.get(each, NOTHING)) for each in moved
            )
            if before != after:
                return 1 if after > before else -1
        return 0

    def _by_element(self, away: Iterable[tuple[str, Amounts]]) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for policy_id, amounts in away:
            for each in self.paths[policy_id]:
                add_to(found.setdefault(each, {}), amounts)
        return found

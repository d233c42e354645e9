"""How evenly the fair shares of a pool are used: the order of preemptions under fair share.

An element is a policy, or a policy's own work beside the policies below it. Its level of use is its
holding divided by its entitlement: the fair share computed from demands alone, without holdings, so
that no preemption moves it. For every level of the tree the levels of use form a sorted list, the
lowest first; the balance is these lists from the top of the tree down. A preemption must raise it,
compared number by number. Entitlements are constant between preemptions and the states are finite,
so preemptions end.

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
    """The use and the entitlement of every element of one pool."""

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
        """The largest part of its entitlement that an element uses of any key, with `more` added
        and `less` removed; infinite without an entitlement.
        """
        entitled, used = self.entitled.get(element), self._used[element]
        if entitled is None:  # it had no demand when entitlements were computed
            return inf if used or more else 0.0
        found = [
            (used.get(key, 0) + more.get(key, 0) - less.get(key, 0)) / due
            for key, due in entitled.items()
            if due > 0
        ]
        return round(max(found), _DIGITS) if found else inf

    def levels(self, policy_id: str) -> tuple[float, ...]:
        """The levels of use from the top of the tree down to a policy; lower ones go first."""
        return tuple([self.level(each) for each in self.paths[policy_id]])

    def use(self, policy_id: str) -> float:
        """The level of use of a policy's own work."""
        return self.level(self.paths[policy_id][-1])

    def may_lose(self, policy_id: str, amounts: Amounts, beneficiary: str) -> bool:
        """Whether a policy that gives back `amounts` stays above the beneficiary's level of use."""
        left = self.level(self.paths[policy_id][-1], less=amounts)
        return left > self.use(beneficiary)

    def rises(self, beneficiary: str, demand: Amounts, away: Mapping[str, Amounts]) -> bool:
        """Whether the balance rises if a policy gets `demand` and others give back `away`, by
        policy; never for a policy without an entitlement.
        """
        return self.use(beneficiary) != inf and self._change(beneficiary, demand, away) > 0

    def stays(self, policy_id: str, demand: Amounts, away: Amounts) -> bool:
        """Whether the balance does not fall if work of a policy gets `demand` and other work of it
        gives back `away`: a balance that falls could be raised again, without end.
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
            # Only moved elements are compared: equal numbers in both lists do not decide.
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

"""Which takings between policies are fair, said once more from the definition.

Entitlements are computed anew from all demands with nobody holding anything; levels of use and the
lists of every level of the tree are written out whole and compared as lists.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from cede.engine.fair.shares import compute
from cede.engine.fair.tree import ROOT, Element, Kind, Mode, Options, Tree
from cede.engine.state.state import State
from cede.model.amounts import Amounts, total
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.request import Request

OWN = "own work of "


class Rule:
    """One pool as it is now. A policy's own work beside policies below it stands at their level."""

    def __init__(self, state: State, pool: Pool) -> None:
        self.state, self.pool = state, pool
        self.policies = {p.id: p for p in state.policies.values() if p.pool_id == pool.id}
        self._parents = {p.parent_id for p in self.policies.values()}
        self.entitled = self._entitled()
        deepest = max(len(self.path(each)) for each in self.policies)
        self._levels: list[list[str]] = [
            sorted({path[depth] for path in map(self.path, self.policies) if len(path) > depth})
            for depth in range(deepest)
        ]

    def path(self, policy_id: str) -> list[str]:
        """The elements that count what a policy itself holds, from the top down."""
        found = [policy_id]
        while (parent := self.policies[found[0]].parent_id) is not None:
            found.insert(0, parent)
        return [*found, OWN + policy_id] if policy_id in self._parents else found

    def _entitled(self) -> dict[str, dict[str, float]]:
        totals = {key: float(self.pool.capacity[key]) for key in sorted(self.pool.capacity)}
        policies = [
            Element(
                p.id,
                Kind.POLICY,
                p.parent_id or ROOT,
                weight=p.weight,
                mode=Mode(p.mode),
                guarantee=dict(p.reserved),
                limit=dict(p.limit),
            )
            for p in sorted(self.policies.values(), key=lambda p: (p.name, p.id))
        ]
        requests, parents = self._requests()
        settings = self.pool.settings
        options = Options(
            main="gpu" if "gpu" in totals else next(iter(totals)),
            gang_steps=settings.gang_steps,
            improved=settings.improved_fit_factor,
        )
        shares = compute(Tree(totals, (*policies, *requests)), options)
        found = {each: dict(zip(totals, shares[each].total, strict=True)) for each in self.policies}
        for policy_id in self.policies:
            own = [shares[each.id].total for each in requests if parents[each.id] == policy_id]
            summed = [sum(each) for each in zip(*own, strict=True)] or [0.0] * len(totals)
            found[OWN + policy_id] = dict(zip(totals, summed, strict=True))
        return {
            each: {key: part * totals[key] for key, part in parts.items()}
            for each, parts in found.items()
        }

    def _requests(self) -> tuple[list[Element], dict[str, str]]:
        """Every request with all it holds or wants, holding nothing; and whose it is."""
        wanted: dict[str, list[Amounts]] = {}
        members: dict[str, list[Request]] = {}
        parents: dict[str, str] = {}
        for request in self.state.requests.values():
            held = [
                (a.policy_id, a.amounts)
                for a in self.state.allocations.values()
                if a.live and a.request_id == request.id and a.pool_id == self.pool.id
            ]
            if not held and request.waiting and request.id not in self.state.delayed:
                places = [p for p in self.state.places(request.id) if p.id in self.policies]
                held = [(place.id, request.amounts) for place in places]
            for policy_id, amounts in held:
                group = request.part_of or request.id
                wanted.setdefault(group, []).append(self.pool.metered(amounts))
                members.setdefault(group, []).append(request)
                if request is min(members[group], key=lambda each: each.age):
                    parents[group] = policy_id
        requests = []
        for group in sorted(wanted, key=lambda each: min(r.age for r in members[each])):
            first = min(members[group], key=lambda each: each.age)
            requests.append(
                Element(
                    group,
                    parent=parents[group],
                    weight=first.terms.weight,
                    limit=first.terms.limit,
                    demand=total(wanted[group]),
                    gang=first.shape is not None and first.shape.tasks > 1,
                    submitted=first.index,
                )
            )
        return requests, parents

    def used(self, gone: Collection[str] = (), more: tuple[str, Amounts] | None = None) -> Amounts:
        """What every element uses, by element and key, in one map."""
        found: dict[str, int] = {}
        held = [
            (a.policy_id, a.amounts)
            for a in self.state.allocations.values()
            if a.live and a.pool_id == self.pool.id and not a.leaving and a.id not in gone
        ]
        held += [
            (r.earmark.policy_id, r.amounts)
            for r in self.state.waiting()
            if r.earmark is not None and r.earmark.pool_id == self.pool.id
        ]
        held += [] if more is None else [more]
        for policy_id, amounts in held:
            for element in self.path(policy_id):
                for key, amount in self.pool.metered(amounts).items():
                    found[f"{element} {key}"] = found.get(f"{element} {key}", 0) + amount
        return found

    def level(self, element: str, used: Amounts) -> float:
        parts = [
            used.get(f"{element} {key}", 0) / due
            for key, due in self.entitled[element].items()
            if due > 1e-12
        ]
        return round(max(parts), 9) if parts else inf

    def lists(self, used: Amounts) -> list[list[float]]:
        """For every level of the tree the levels of use of who is entitled to anything."""
        return [
            sorted(found for each in level if (found := self.level(each, used)) != inf)
            for level in self._levels
        ]

    def unfair(self, waiter: Request, policy: Policy, victims: Collection[str]) -> str:
        """Why these may not be taken for a waiter; nothing if they may."""
        policies = {self.state.allocations[each].policy_id for each in victims}
        before = self.used()
        after = self.used(victims, (policy.id, waiter.amounts))
        if policies <= {policy.id}:
            if self.lists(after) < self.lists(before):
                return f"S7 {waiter.id} takes {sorted(victims)} of its own, and its policy has less"
            return ""
        mine = self.level(self.path(policy.id)[-1], before)
        if mine == inf:
            return f"S7 {waiter.id} is entitled to nothing and takes {sorted(victims)}"
        for each in policies - {policy.id}:
            if not self.level(self.path(each)[-1], after) > mine:
                name = self.policies[each].name
                return f"S7 {waiter.id} takes {sorted(victims)} and {name} falls to where it stood"
        if not self.lists(after) > self.lists(before):
            return f"S7 {waiter.id} takes {sorted(victims)} and shares are used no more evenly"
        return ""

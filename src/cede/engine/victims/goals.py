"""Goals that a set of victims must meet: free amounts, and room for tasks on nodes.

A goal starts from the capacity that is already free, and is told which holders would be gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import add
from typing import Protocol

from cede.engine.fair.balance import Balance
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.nodes.placement import View, need_of, places_for, slots, suits
from cede.engine.nodes.topology import is_below
from cede.engine.rights.cover import Holding
from cede.model.amounts import Amounts, add_to, take_from
from cede.model.shape import Form


class Goal(Protocol):
    """A condition that a set of victims must meet."""

    @property
    def keys(self) -> Iterable[str]:
        """The keys that it counts; holders that differ only in other keys help it alike."""

    @property
    def everywhere(self) -> bool:
        """Whether it counts holders of every policy."""

    @property
    def left(self) -> int:
        """The missing amount. Holders without a common node together lower it by no more than the
        sum of their single effects.
        """

    @property
    def met(self) -> bool: ...

    @property
    def rights(self) -> bool:
        """Whether it concerns the waiter's rights only, and not room for it."""

    @property
    def by_policy(self) -> bool:
        """Whether holders of different policies never help alike."""

    def wants(self, holding: Holding) -> bool:
        """Whether stopping this holder would help."""

    def bars(self, holding: Holding) -> bool:
        """Whether stopping this holder too is excluded, with any other victims."""

    def take_away(self, holding: Holding, sign: int) -> None:
        """Count a holder as gone (1), or as there again (-1)."""


class Shortage:
    """Amounts that must be freed; under one policy, if it is given."""

    def __init__(
        self,
        missing: dict[str, int],
        ledger: PoolLedger | None = None,
        above: str | None = None,
        rights: bool = False,
    ) -> None:
        self._missing, self._ledger, self._above = missing, ledger, above
        self.rights = rights
        self.by_policy = False

    @property
    def keys(self) -> Iterable[str]:
        return self._missing

    @property
    def everywhere(self) -> bool:
        return self._ledger is None

    @property
    def left(self) -> int:
        return sum(left for left in self._missing.values() if left > 0)

    @property
    def met(self) -> bool:
        for left in self._missing.values():  # noqa: SIM110 - asked for every victim
            if left > 0:
                return False
        return True

    def wants(self, holding: Holding) -> bool:
        if self._counts(holding):
            for key in holding.amounts:
                if self._missing.get(key, 0) > 0:
                    return True
        return False

    def bars(self, holding: Holding) -> bool:
        return False

    def take_away(self, holding: Holding, sign: int) -> None:
        if self._counts(holding):
            for key, amount in holding.amounts.items():
                if key in self._missing:
                    self._missing[key] -= sign * amount

    def _counts(self, holding: Holding) -> bool:
        if self.rights:  # an exchange counts holders of its own policy only
            return holding.policy_id == self._above
        return self._ledger is None or self._above in self._ledger.chains[holding.policy_id]


class Clearing:
    """The number of tasks of a demand that have places with some holders gone; on all nodes, or on
    those of topology groups below a path.
    """

    rights = False
    by_policy = False

    def __init__(self, view: View, form: Form, count_free: bool = True, below: str = "") -> None:
        need = need_of(view.inventory, form)
        assert need is not None, "what can never be placed does not wait"
        self._view, self._form, self._need = view, form, need
        self._count_free, self._below = count_free, below
        self._places = places_for(view, form, below) if count_free else 0
        self._away: dict[str, list[int]] = {}  # by node: the amounts freed there

    @property
    def keys(self) -> Iterable[str]:
        return dict(self._form.amounts)

    @property
    def everywhere(self) -> bool:
        return True

    @property
    def left(self) -> int:
        return max(self._form.tasks - self._places, 0)

    @property
    def met(self) -> bool:
        return self._places >= self._form.tasks

    def wants(self, holding: Holding) -> bool:
        return not self.met and any(self._suits(node_id) for node_id, _ in holding.footprint)

    def bars(self, holding: Holding) -> bool:
        return False

    def take_away(self, holding: Holding, sign: int) -> None:
        keys = self._view.inventory.keys
        for node_id, tasks in holding.footprint:
            if not self._suits(node_id):
                continue
            before = self._slots(node_id)
            freed = self._away.setdefault(node_id, [0] * len(keys))
            for at, key in enumerate(keys):
                freed[at] += sign * tasks * holding.each.get(key, 0)
            self._places += self._slots(node_id) - before

    def _suits(self, node_id: str) -> bool:
        node = self._view.inventory.spots[node_id].node
        allowed = self._view.allows(node_id) and is_below(node.group, self._below)
        return node.usable and allowed and suits(node, self._form)

    def _slots(self, node_id: str) -> int:
        freed = self._away.get(node_id)
        if freed is None and not self._count_free:
            return 0
        room = self._view.instead.get(node_id)
        if room is None:
            room = self._view.inventory.spots[node_id].promise[0]
        if freed is not None:
            room = tuple(map(add, room, freed))
            if not self._count_free:  # freed amounts only, without room withheld there
                room = tuple(map(min, room, freed))
        return slots(room, self._need, self._form.per_node)


class Fairness:
    """The goal that preemptions of other policies raise the balance, and leave each of them above
    the beneficiary's level of use. Between requests of one policy their groups decide, and the
    balance does not fall.
    """

    rights = True
    by_policy = True
    everywhere = False
    left = 0  # no victim brings it nearer: it only excludes sets that meet the other goals

    def __init__(
        self, balance: Balance, policy_id: str, demand: Amounts, keys: Iterable[str]
    ) -> None:
        """`keys`: all keys of shares, also those that the waiter does not ask for."""
        self._balance, self._policy_id, self._demand, self.keys = balance, policy_id, demand, keys
        self._away: dict[str, dict[str, int]] = {}

    @property
    def met(self) -> bool:
        if all(each == self._policy_id for each in self._away):
            own = self._away.get(self._policy_id)
            return own is None or self._balance.stays(self._policy_id, self._demand, own)
        return not any(map(self._falls, self._away)) and self._balance.rises(
            self._policy_id, self._demand, self._away
        )

    def wants(self, holding: Holding) -> bool:
        return False

    def bars(self, holding: Holding) -> bool:
        return self._falls(holding.policy_id, holding.amounts)

    def take_away(self, holding: Holding, sign: int) -> None:
        away = self._away.setdefault(holding.policy_id, {})
        (add_to if sign > 0 else take_from)(away, holding.amounts)
        if not away:
            del self._away[holding.policy_id]

    def _falls(self, policy_id: str, more: Amounts | None = None) -> bool:
        if policy_id == self._policy_id:
            return False
        away = dict(self._away.get(policy_id, {}))
        add_to(away, more or {})
        return not self._balance.may_lose(policy_id, away, self._policy_id)


def all_needed(goals: Sequence[Goal], away: Iterable[Holding]) -> bool:
    """Whether each of these victims is needed for room: no holder is stopped for rights alone. True
    if no goal concerns rights.
    """
    room = [goal for goal in goals if not goal.rights]
    return len(room) == len(goals) or all(_is_needed(room, each) for each in away)


def _is_needed(goals: Sequence[Goal], holding: Holding) -> bool:
    for goal in goals:
        goal.take_away(holding, -1)
    enough = all(goal.met for goal in goals)
    for goal in goals:
        goal.take_away(holding, 1)
    return not enough

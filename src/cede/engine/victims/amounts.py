"""A reserve protects amounts, not particular pieces of work.

Where no set of victims is legal by standing, an owner inside its reserve may stop holders by
amounts: any preemptible ones, if their policies keep their reserves. So each victim is beyond a
reserve once it is back, and the owner, inside its own, is not.

No promise gives way to such a preemption: its standing is above none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import le

from cede.engine.ledger.account import beyond_reserve, staying
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.rights.cover import Holding
from cede.engine.rights.standing import BORROWED
from cede.engine.state.state import State
from cede.engine.victims.protection import Preemptor, spared
from cede.model.amounts import Amounts


def has_reserve_left(ledger: PoolLedger, policy_id: str) -> bool:
    """Whether any demand could be inside a policy's reserve: some of a key that counts is left."""
    if not ledger.by_amounts:
        return False
    reserved, held = ledger.policies[policy_id].reserved, staying(ledger, policy_id)
    return any(held.get(key, 0) < reserved.get(key, 0) for key in ledger.counting)


def inside_reserve(ledger: PoolLedger, policy_id: str, demand: Amounts) -> bool:
    """Whether reserves give rights here, and a policy with this demand holds more inside its
    reserve and nothing beyond it.
    """
    if not ledger.by_amounts or not any(map(demand.get, ledger.counting)):
        return False
    reserved, held = ledger.policies[policy_id].reserved, staying(ledger, policy_id)
    return all(
        held.get(key, 0) + demand.get(key, 0) <= reserved.get(key, 0) for key in ledger.counting
    )


class Kept:
    """The goal that the policy of each victim, and those above it that are not above the owner as
    well, keep their reserves. A leaving holder counts as gone.
    """

    rights = True
    by_policy = True
    everywhere = False
    left = 0  # no victim brings it nearer: it only excludes sets that meet the other goals

    def __init__(self, ledger: PoolLedger, policy_id: str) -> None:
        self._ledger, self._policy_id = ledger, policy_id
        self._spare: dict[str, dict[str, int]] = {}  # by policy: the amounts it may still lose
        self._losing: dict[str, tuple[str, ...]] = {}

    @property
    def keys(self) -> Iterable[str]:
        return self._ledger.counting

    @property
    def met(self) -> bool:
        return all(left >= 0 for spare in self._spare.values() for left in spare.values())

    def wants(self, holding: Holding) -> bool:
        return False

    def bars(self, holding: Holding) -> bool:
        return any(
            holding.amounts.get(key, 0) > left
            for policy_id in self._losers(holding.policy_id)
            for key, left in self._spare_of(policy_id).items()
        )

    def take_away(self, holding: Holding, sign: int) -> None:
        for policy_id in self._losers(holding.policy_id):
            spare = self._spare_of(policy_id)
            for key in spare:
                spare[key] -= sign * holding.amounts.get(key, 0)

    def _spare_of(self, policy_id: str) -> dict[str, int]:
        known = self._spare.get(policy_id)
        if known is None:
            known = self._spare[policy_id] = beyond_reserve(self._ledger, policy_id)
        return known

    def _losers(self, policy_id: str) -> tuple[str, ...]:
        """The policies that a victim of this one is counted out of."""
        known = self._losing.get(policy_id)
        if known is None:
            chains = self._ledger.chains
            above = [each for each in chains[policy_id][1:] if each not in chains[self._policy_id]]
            known = self._losing[policy_id] = (policy_id, *above)
        return known


def legal_by_amounts(
    state: State, ledger: PoolLedger, preemptor: Preemptor, holdings: Iterable[Holding]
) -> Iterator[tuple[int, Holding]]:
    """The holders among some that could be stopped by amounts, with their rights. Holders below the
    owner's policy belong to the owner.
    """
    kept = Kept(ledger, preemptor.policy_id)
    could = [each for each in holdings if _is_beyond(ledger, preemptor, each, kept)]
    if could and ledger.inventory is not None:
        could = _on_nodes_that_help(state, ledger, preemptor, could)
    for each in could:
        if spared(state, ledger, preemptor, each, BORROWED) is None:
            yield ledger.rights(each.id), each


def _on_nodes_that_help(
    state: State, ledger: PoolLedger, preemptor: Preemptor, holdings: list[Holding]
) -> list[Holding]:
    """The holders among some on nodes where a task would fit if every policy lost as much there as
    it may. Other holders are in no set, and searching them would take long.
    """
    inventory, form = ledger.inventory, preemptor.key.form
    assert inventory is not None and form is not None
    freed: dict[str, dict[str, list[int]]] = {}  # by node, by policy
    for each in holdings:
        room = inventory.room(each.each)
        for node_id, tasks in each.footprint:
            of_policies = freed.setdefault(node_id, {})
            amounts = of_policies.setdefault(each.policy_id, [0] * len(room))
            for at, amount in enumerate(room):
                amounts[at] += tasks * amount
    spare = {pid: beyond_reserve(ledger, pid) for of in freed.values() for pid in of}
    view = preemptor.site(state, ledger)
    need = inventory.room(dict(form.amounts))
    helping = set()
    for node_id, of_policies in freed.items():
        most = list(view.instead.get(node_id, inventory.spots[node_id].promise[0]))
        for policy_id, amounts in of_policies.items():
            for at, key in enumerate(inventory.keys):
                most[at] += min(amounts[at], spare[policy_id].get(key, amounts[at]))
        if all(map(le, need, most)):
            helping.add(node_id)
    return [each for each in holdings if any(node in helping for node, _ in each.footprint)]


def may_lose(
    state: State, ledger: PoolLedger, preemptor: Preemptor, holding: Holding, kept: Kept
) -> bool:
    """Whether a holder could be stopped by amounts beside those that `kept` counts as gone."""
    beyond = _is_beyond(ledger, preemptor, holding, kept)
    return beyond and spared(state, ledger, preemptor, holding, BORROWED) is None


def _is_beyond(ledger: PoolLedger, preemptor: Preemptor, holding: Holding, kept: Kept) -> bool:
    """Whether others' reserves are kept without a holder. A holder without a key that counts is
    beyond no reserve, and would have its old standing once it is back.
    """
    return (
        not kept.bars(holding)
        and preemptor.policy_id not in ledger.chains[holding.policy_id]
        and any(map(holding.amounts.get, ledger.counting))
    )

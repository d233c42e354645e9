"""The node that comes closest to the demand of an owner inside its reserve, and what is in the way
there; shown where no holder could be stopped for it, by standing or by amounts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cede.engine.ledger.account import staying
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.nodes.inventory import NodeInventory
from cede.engine.nodes.placement import View, suits
from cede.engine.rights.cover import Holding
from cede.engine.state.state import State
from cede.engine.victims.amounts import Kept, may_lose
from cede.engine.victims.pricing import shield
from cede.engine.victims.protection import Preemptor
from cede.model.amounts import show
from cede.model.node import Node
from cede.model.shape import Form

# Holders named on one node.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Closest:
    """A node, the amounts that one task still misses there once all holders that could be stopped
    are gone, and a sentence on each holder that stays.
    """

    node: Node
    missing: dict[str, int]
    in_the_way: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        stay = "; ".join(self.in_the_way[:_NAMED])
        more = len(self.in_the_way) - _NAMED
        stay += f"; and {more} more" if more > 0 else ""
        return f"node {self.node.name} comes closest, with {show(self.missing)} missing: {stay}"


def closest_node(
    state: State, ledger: PoolLedger, preemptor: Preemptor, view: View, form: Form
) -> Closest | None:
    """The node on which a task of this form misses the least, of those with a holder in the way;
    None if there is no such node, as when only too few nodes have room.
    """
    inventory = ledger.inventory
    assert inventory is not None
    best: Closest | None = None
    for spot in sorted(inventory.spots.values(), key=lambda each: each.node.name):
        node = spot.node
        if not (node.usable and view.allows(node.id) and suits(node, form)):
            continue
        found = _on_node(state, ledger, preemptor, view, form, node)
        if not found.missing or not found.in_the_way:
            continue
        if best is None or _sizes(inventory, found) < _sizes(inventory, best):
            best = found
    return best


def _sizes(inventory: NodeInventory, found: Closest) -> tuple[int, ...]:
    return tuple(found.missing.get(key, 0) for key in inventory.keys)


def _on_node(
    state: State, ledger: PoolLedger, preemptor: Preemptor, view: View, form: Form, node: Node
) -> Closest:
    inventory = ledger.inventory
    assert inventory is not None
    spot = inventory.spots[node.id]
    room = list(view.instead.get(node.id, spot.promise[0]))
    kept, gone, stay = Kept(ledger, preemptor.policy_id), list[Holding](), list[Holding]()
    for holding, tasks in sorted(spot.holdings.values(), key=lambda each: each[0].index):
        if holding.leaving or holding.id == preemptor.request.id:
            continue
        could = holding.takeable and not holding.safe
        if could and may_lose(state, ledger, preemptor, holding, kept):
            kept.take_away(holding, 1)
            gone.append(holding)
            for at, key in enumerate(inventory.keys):
                room[at] += tasks * holding.each.get(key, 0)
        else:
            stay.append(holding)
    need = inventory.room(dict(form.amounts))
    lacks = {
        key: wanted - left
        for key, wanted, left in zip(inventory.keys, need, room, strict=True)
        if wanted > left
    }
    helps = [each for each in stay if any(each.each.get(key) for key in lacks)]
    said = [_why_it_stays(state, ledger, preemptor, gone, each) for each in helps]
    return Closest(node, lacks, said)


def _why_it_stays(
    state: State, ledger: PoolLedger, preemptor: Preemptor, gone: list[Holding], holding: Holding
) -> str:
    """Why a holder is not stopped by amounts beside those that could be."""
    if holding.earmark:
        return f"{holding.id} was promised its place"
    name = state.allocations[holding.id].request_id
    if not holding.takeable or holding.safe or shield(state, ledger, holding) is not None:
        return f"{name} is stopped for nobody"
    if preemptor.policy_id in ledger.chains[holding.policy_id]:
        return f"{name} is of its own policy"
    for policy_id, key, left in _falls(ledger, preemptor, gone, holding):
        policy = ledger.policies[policy_id]
        away = [e for e in (*gone, holding) if policy_id in ledger.chains[e.policy_id]]
        names = " and ".join(state.allocations[each.id].request_id for each in away)
        bound = policy.reserved.get(key, 0)
        return f"without {names} {policy.name} would hold {left} {key}, and it reserves {bound}"
    return f"{name} is protected, or holds nothing that is reserved"


def _falls(
    ledger: PoolLedger, preemptor: Preemptor, gone: list[Holding], holding: Holding
) -> Iterator[tuple[str, str, int]]:
    """The policies that would keep less than their reserve, with the key and what they would
    keep.
    """
    above = ledger.chains[preemptor.policy_id]
    chain = ledger.chains[holding.policy_id]
    for policy_id in (chain[0], *(each for each in chain[1:] if each not in above)):
        held, reserved = staying(ledger, policy_id), ledger.policies[policy_id].reserved
        away = [each for each in gone if policy_id in ledger.chains[each.policy_id]]
        for key in ledger.counting:
            if not holding.amounts.get(key):
                continue
            left = held.get(key, 0) - sum(e.amounts.get(key, 0) for e in (*away, holding))
            if left < reserved.get(key, 0):
                yield policy_id, key, left

"""The owners of nodes, and the nodes that a waiter may therefore use.

A node may be one policy's own. In a pool with such nodes, a holding that sits only on nodes of its
own policy is at home, which is its share; elsewhere it borrows, and a policy without a home always
does. Idle nodes are lent as far as their owner allows. A claimed node is for the sensitive work of
its claimant only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import nsmallest
from itertools import product
from math import floor

from sortedcontainers import SortedList

from cede.engine.fair.status import SMALL
from cede.engine.nodes.eligible import EligibleNodes
from cede.engine.nodes.inventory import NodeInventory
from cede.engine.nodes.listing import Entry, Part, Room
from cede.engine.nodes.placement import need_of, slots, suits
from cede.engine.rights.price import UNSAVED_CLASS
from cede.engine.rights.standing import BORROWED, IN_SHARE
from cede.model.policy import Kind, Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.settings import Rank
from cede.model.shape import Footprint, Form
from cede.model.stopping import Checkpoint
from cede.model.terms import CLASS_MAX


@dataclass(slots=True)
class Use:
    """The use of a policy's nodes: how many are lent, which are idle, and which of these may be
    lent to a form.
    """

    lent: int = 0
    idle: list[str] = field(default_factory=list)
    lendable: dict[Form, SortedList[Entry]] = field(default_factory=dict)


def _parts(owners: Iterable[str], claimants: Iterable[str]) -> frozenset[Part]:
    return frozenset(product(owners, claimants, (False, True)))


class Homes:
    """The homes of one pool's policies."""

    def __init__(self, policies: Mapping[str, Policy], inventory: NodeInventory | None) -> None:
        self._policies = policies
        self._inventory = inventory
        self.owner: dict[str, str] = {}  # node: the policy that owns it
        self.nodes: dict[str, tuple[str, ...]] = {}  # policy: its own, in order of their names
        # (policy, without claimed nodes): the number of moves and the use that `_used` found then
        self._uses: dict[tuple[str, bool], tuple[int, Use]] = {}
        if inventory is None:
            return
        spots = sorted(inventory.spots.values(), key=lambda each: each.node.name)
        for policy in sorted(policies.values(), key=lambda each: (each.name, each.id)):
            if policy.home is None:
                continue
            mine = [
                each.node.id
                for each in spots
                if each.node.id not in self.owner
                and policy.home.has(each.node.name, each.node.labels)
            ]
            self.nodes[policy.id] = tuple(mine)
            self.owner.update(dict.fromkeys(mine, policy.id))
        inventory.divide(self.owner)

    @property
    def matter(self) -> bool:
        """Whether any node is a policy's own, or claimed."""
        return bool(self.nodes or (self._inventory is not None and self._inventory.claimed))

    @property
    def decide(self) -> bool:
        """Whether rights depend on the place: as soon as one policy has nodes of its own."""
        return bool(self.nodes)

    def levels(self, policy_id: str, preemptible: bool) -> tuple[int, ...]:
        """The rights that work of a policy may have, the highest first. Non-preemptible work of a
        policy with a home stays there.
        """
        if policy_id not in self.nodes:
            return (BORROWED,)
        return (IN_SHARE, BORROWED) if preemptible else (IN_SHARE,)

    def at_home(self, policy_id: str, footprint: Footprint) -> bool:
        """Whether all tasks sit on the policy's own nodes."""
        return all(self.owner.get(node_id) == policy_id for node_id, _ in footprint)

    def eligible(
        self, policy_id: str, rights: int, settled: bool, claimant: str | None, form: Form
    ) -> Iterator[EligibleNodes | None]:
        """The nodes that a waiter of these rights and this form may use, preferred ones first; None
        means all nodes.

        A `settled` waiter cannot be asked to leave, and so is never lent a node. Without a claimant
        (None) nodes are included as if none were claimed.
        """
        inventory = self._inventory
        if inventory is None or not self.matter:
            yield None
            return
        claimants = self._open_to(claimant)
        if policy_id in self.nodes and rights == IN_SHARE:
            yield EligibleNodes(inventory.spots, _parts((policy_id,), claimants))
            return
        mine = {
            inventory.spots[each].part for each, who in inventory.claimed.items() if who == claimant
        }
        common = _parts((policy_id, ""), claimants)
        if mine:
            yield EligibleNodes(inventory.spots, frozenset(mine))
            common |= mine
        yield EligibleNodes(inventory.spots, common)
        if not settled and self._policies[policy_id].allow_borrowing:
            lent, idle = self._lent(policy_id, claimant, form)
            if lent or idle:
                yield EligibleNodes(inventory.spots, common | lent, idle)

    def _open_to(self, claimant: str | None) -> set[str]:
        """Claimants whose nodes this waiter may use."""
        assert self._inventory is not None
        return {"", *(self._inventory.claimed.values() if claimant is None else (claimant,))}

    def _lent(
        self, policy_id: str, claimant: str | None, form: Form
    ) -> tuple[frozenset[Part], dict[str, SortedList[Entry]]]:
        """The nodes that other policies lend: the parts with lent nodes, and by lender the idle
        nodes that it lends besides.
        """
        lenders, idle = [], {}
        for lender_id in self.nodes:
            lender = self._policies[lender_id]
            if lender_id == policy_id or not lender.allow_lending or lender.kind is Kind.SENSITIVE:
                continue
            use = self._used(lender_id, claimant is not None)
            if use.lent:
                lenders.append(lender_id)
            if listed := self._lendable(lender, use, form):
                idle[lender_id] = listed
        claimants = self._open_to(claimant) if claimant is None else ("",)
        return frozenset((each, who, True) for each in lenders for who in claimants), idle

    def _lendable(self, lender: Policy, use: Use, form: Form) -> SortedList[Entry]:
        """As many idle nodes as a policy still lends, chosen by how many tasks of the form they
        hold; cached with the policy's use.
        """
        known = use.lendable.get(form)
        if known is None:
            assert self._inventory is not None
            most = floor(lender.max_borrow_pct * len(self.nodes[lender.id]) + SMALL)
            more, chosen = max(most - use.lent, 0), use.idle
            if more < len(chosen):
                chosen = nsmallest(more, chosen, key=partial(self._fit, form))
            spots = map(self._inventory.spots.__getitem__, chosen)
            known = SortedList(spot.now for spot in spots if spot.node.usable)
            use.lendable[form] = known
        return known

    def _used(self, lender_id: str, but_claimed: bool) -> Use:
        """The use of a policy's nodes, cached until something changes there."""
        inventory, asked = self._inventory, (lender_id, but_claimed)
        assert inventory is not None
        known = self._uses.get(asked)
        if known is None or known[0] != inventory.moves[lender_id]:
            use = Use()
            for node_id in self.nodes[lender_id]:
                spot = inventory.spots[node_id]
                if but_claimed and spot.node.claimed_by:
                    continue
                if not spot.holdings:
                    use.idle.append(node_id)
                else:
                    use.lent += spot.part[2]
            known = self._uses[asked] = (inventory.moves[lender_id], use)
        return known[1]

    def _fit(self, form: Form, node_id: str) -> tuple[int, Room]:
        """The sort key of idle nodes for a form: most tasks first, then smallest."""
        inventory = self._inventory
        assert inventory is not None
        node, need = inventory.spots[node_id].node, need_of(inventory, form)
        room = inventory.room(node.amounts)
        if need is None or not node.usable or not suits(node, form):
            return (0, room)
        return (-min(slots(room, need, form.per_node), form.tasks), room)


def is_settled(pool: Pool, policy: Policy, request: Request) -> bool:
    """Whether it could not be asked to leave a node and has no walltime."""
    if request.walltime is not None:
        return False
    terms, settings = request.terms, pool.settings
    if terms.sensitive or not request.preemptible:
        return True
    if settings.rank is not Rank.CLASS:
        return False
    if terms.preemption_class >= CLASS_MAX or policy.kind is Kind.SENSITIVE:
        return True
    unsaved = request.stop_policy.checkpoint is Checkpoint.NONE
    return unsaved and settings.protect_unsaved and terms.preemption_class >= UNSAVED_CLASS

"""Whose a node is, and where a waiter may therefore sit.

A node may be one policy's own. Where any is, whoever sits only on nodes of its own policy is at
home, which is its share; elsewhere it borrows, and who has no home always does. Idle nodes are lent
as far as their owner lets them be. A claimed node is for the sensitive work of whoever claimed it,
and for nobody else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from heapq import nsmallest
from math import floor

from cede.engine.fair.status import SMALL
from cede.engine.ground import Ground
from cede.engine.listing import Room
from cede.engine.placement import need_of, slots, suits
from cede.engine.price import UNSAVED_CLASS
from cede.engine.standing import BORROWED, IN_SHARE
from cede.model.parting import Checkpoint
from cede.model.policy import Kind, Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.settings import Rank
from cede.model.shape import Footprint, Form
from cede.model.terms import CLASS_MAX

Nodes = frozenset[str]


class Homes:
    """The homes of one pool's policies."""

    def __init__(self, policies: Mapping[str, Policy], ground: Ground | None) -> None:
        self._policies = policies
        self._ground = ground
        self.owner: dict[str, str] = {}  # node: whose it is
        self.nodes: dict[str, tuple[str, ...]] = {}  # policy: its own, in order of their names
        self._sets: dict[tuple[str, int], Nodes] = {}  # (policy, rights): where it may sit
        # (policy, but those claimed): as `_used` last found them
        self._uses: dict[tuple[str, bool], tuple[int, list[str], list[str]]] = {}
        if ground is None:
            return
        spots = sorted(ground.spots.values(), key=lambda each: each.node.name)
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

    @property
    def matter(self) -> bool:
        """Whether any node is somebody's, or claimed."""
        return bool(self.nodes or (self._ground is not None and self._ground.claimed))

    @property
    def decide(self) -> bool:
        """Whether rights go by place: so they do as soon as one policy has nodes of its own."""
        return bool(self.nodes)

    def levels(self, policy_id: str, preemptible: bool) -> tuple[int, ...]:
        """The rights that work of a policy may have, the highest first. Who has a home and may not
        be asked to leave stays there.
        """
        if policy_id not in self.nodes:
            return (BORROWED,)
        return (IN_SHARE, BORROWED) if preemptible else (IN_SHARE,)

    def at_home(self, policy_id: str, footprint: Footprint) -> bool:
        """Whether all tasks sit on the policy's own nodes."""
        return all(self.owner.get(node_id) == policy_id for node_id, _ in footprint)

    def reaches(
        self, policy_id: str, rights: int, settled: bool, claimant: str | None, form: Form
    ) -> Iterator[Nodes | None]:
        """The nodes where somebody of these rights and this form may sit, those to be preferred
        first; None is all of them.

        Who is `settled` cannot be asked to leave, and so is never lent a node. To no claimant
        (None) they are shown as if nothing were claimed.
        """
        ground = self._ground
        if ground is None or not self.matter:
            yield None
            return
        if policy_id in self.nodes and rights == IN_SHARE:
            yield self._open(self._home(policy_id), claimant)
            return
        mine = frozenset(each for each, who in ground.claimed.items() if who == claimant)
        common = self._open(self._common(policy_id), claimant)
        if mine:
            yield mine
            common |= mine
        yield common
        if not settled and self._policies[policy_id].allow_borrowing:
            lent = [
                node_id
                for lender_id in self.nodes
                if lender_id != policy_id
                for node_id in self._lendable(lender_id, claimant, form)
            ]
            if lent:
                yield common | self._open(frozenset(lent), claimant)

    def _home(self, policy_id: str) -> Nodes:
        """A policy's own nodes; worked out once, as whose a node is."""
        known = self._sets.get((policy_id, IN_SHARE))
        if known is None:
            known = self._sets[policy_id, IN_SHARE] = frozenset(self.nodes[policy_id])
        return known

    def _common(self, policy_id: str) -> Nodes:
        """A policy's own nodes, and those that are nobody's."""
        known = self._sets.get((policy_id, BORROWED))
        if known is None:
            assert self._ground is not None
            known = self._sets[policy_id, BORROWED] = frozenset(
                each for each in self._ground.spots if self.owner.get(each, policy_id) == policy_id
            )
        return known

    def _open(self, nodes: Nodes, claimant: str | None) -> Nodes:
        """Those of these nodes that nobody else has claimed."""
        assert self._ground is not None
        claims = self._ground.claimed
        if not claims or claimant is None:
            return nodes
        return frozenset(each for each in nodes if claims.get(each, claimant) == claimant)

    def _lendable(self, lender_id: str, claimant: str | None, form: Form) -> list[str]:
        """Those of a policy's nodes that others may use: what is lent already, and as many idle
        ones as it lends besides, of those the ones that have room for the most tasks.
        """
        lender = self._policies[lender_id]
        if not lender.allow_lending or lender.kind is Kind.SENSITIVE:
            return []
        lent, idle = self._used(lender_id, claimant is not None)
        most = floor(lender.max_borrow_pct * len(self.nodes[lender_id]) + SMALL)
        more = max(most - len(lent), 0)
        if more < len(idle):
            idle = nsmallest(more, idle, key=partial(self._fit, form))
        return lent + idle

    def _used(self, lender_id: str, but_claimed: bool) -> tuple[list[str], list[str]]:
        """Those of a policy's nodes that others use, and those that nobody does; worked out once
        for all who ask before something moves.
        """
        ground, asked = self._ground, (lender_id, but_claimed)
        assert ground is not None
        known = self._uses.get(asked)
        if known is None or known[0] != ground.version:
            lent, idle = [], []
            for node_id in self.nodes[lender_id]:
                if but_claimed and node_id in ground.claimed:
                    continue
                holders = ground.spots[node_id].holdings.values()
                if not holders:
                    idle.append(node_id)
                elif any(holding.policy_id != lender_id for holding, _ in holders):
                    lent.append(node_id)
            known = self._uses[asked] = (ground.version, lent, idle)
        return known[1], known[2]

    def _fit(self, form: Form, node_id: str) -> tuple[int, Room]:
        """How well an idle node does: the most tasks, then the smallest."""
        ground = self._ground
        assert ground is not None
        node, need = ground.spots[node_id].node, need_of(ground, form)
        room = ground.room(node.amounts)
        if need is None or not node.usable or not suits(node, form):
            return (0, room)
        return (-min(slots(room, need, form.per_node), form.tasks), room)


def is_settled(pool: Pool, policy: Policy, request: Request) -> bool:
    """Whether it could not be asked to leave a node, and says no end of itself."""
    if request.walltime is not None:
        return False
    terms, settings = request.terms, pool.settings
    if terms.sensitive or not request.preemptible:
        return True
    if settings.rank is not Rank.CLASS:
        return False
    if terms.preemption_class >= CLASS_MAX or policy.kind is Kind.SENSITIVE:
        return True
    unsaved = request.farewell.checkpoint is Checkpoint.NONE
    return unsaved and settings.protect_unsaved and terms.preemption_class >= UNSAVED_CLASS

"""Whose a node is, and who may therefore sit on it, said once more without the engine's own
bookkeeping.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import floor

from cede.engine.rights.standing import BORROWED, IN_SHARE
from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.node import Node
from cede.model.policy import Kind, Policy
from cede.model.pool import Pool
from cede.model.reason import Code
from cede.model.request import Request
from cede.model.settings import Rank
from cede.model.stopping import Checkpoint

from .checks import Broken

HIGHEST, UNSAVED = 10, 7


@dataclass
class Lending:
    """One pool as it is now, and where its waiters may sit."""

    state: State
    pool: Pool

    @cached_property
    def owners(self) -> dict[str, str]:
        """Nodes that are somebody's: of two who would have one, the first by name has it."""
        found: dict[str, str] = {}
        for policy in sorted(self.policies, key=lambda each: (each.name, each.id)):
            for node in self._nodes:
                if policy.home is not None and policy.home.has(node.name, node.labels):
                    found.setdefault(node.id, policy.id)
        return found

    @property
    def _nodes(self) -> list[Node]:
        return [each for each in self.state.nodes.values() if each.pool_id == self.pool.id]

    @property
    def policies(self) -> list[Policy]:
        return [each for each in self.state.policies.values() if each.pool_id == self.pool.id]

    def home(self, policy: Policy) -> set[str]:
        return {node_id for node_id, owner in self.owners.items() if owner == policy.id}

    @property
    def by_place(self) -> bool:
        """Whether home is a place: as soon as one policy has nodes of its own."""
        has_nodes = self.pool.nodes is not None
        return has_nodes and any(each.home is not None for each in self.policies)

    def strangers(self, lender: Policy) -> set[str]:
        """Those of a policy's nodes on which others sit, or were promised a place; but for a claim,
        and for those who leave because of one.
        """
        found = {
            member.node_id
            for each in self.live
            if each.policy_id != lender.id and not _was_claimed(each)
            for member in each.members
        }
        for each in self.state.waiting():
            mark = each.earmark
            if mark is not None and mark.pool_id == self.pool.id and mark.policy_id != lender.id:
                found |= {node_id for node_id, _ in mark.footprint}
        return {each for each in found & self.home(lender) if not self.claimed(each)}

    def claimed(self, node_id: str) -> str:
        """For whose sensitive work a node is kept."""
        return self.state.nodes[node_id].claimed_by

    def most_lent(self, lender: Policy) -> int:
        if not lender.allow_lending or lender.kind is Kind.SENSITIVE:
            return 0
        return floor(lender.max_borrow_pct * len(self.home(lender)) + 1e-9)

    def reaches(self, request: Request, policy: Policy, rights: int) -> list[set[str]]:
        """The sets of nodes, each of which a waiter may use at these rights; of claimed ones those
        that are for it, wherever it is at home.
        """
        who = request.owner if request.terms.sensitive else ""
        every = {each.id for each in self._nodes}
        others = {each for each in every if self.claimed(each) not in ("", who)}
        options = self._reaches(request, policy, rights)
        if rights == BORROWED or not self.by_place:
            mine = {each for each in every if who and self.claimed(each) == who}
            options = [each | mine for each in options]
        return [each - others for each in options]

    def _reaches(self, request: Request, policy: Policy, rights: int) -> list[set[str]]:
        if rights == IN_SHARE and self.by_place:
            return [self.home(policy)]
        every = {each.id for each in self._nodes}
        mine = {each for each in every if self.owners.get(each, policy.id) == policy.id}
        if not policy.allow_borrowing or self.is_settled(request, policy):
            return [mine]
        options: list[set[str]] = [mine]
        for lender in self.policies:
            if lender.id != policy.id and self.home(lender):
                lent = list(self._lendable(lender))
                options = [each | more for each in options for more in lent]
        return options

    def _lendable(self, lender: Policy) -> Iterator[set[str]]:
        """What one policy may lend: what is lent already, with as many idle ones as it may."""
        if not self.most_lent(lender):
            yield set()
            return
        lent = self.strangers(lender)
        used = {member.node_id for each in self.live for member in each.members}
        for each in self.state.waiting():
            if each.earmark is not None:
                used |= {node_id for node_id, _ in each.earmark.footprint}
        idle = {each for each in self.home(lender) - used if not self.claimed(each)}
        more = min(max(self.most_lent(lender) - len(lent), 0), len(idle))
        for some in combinations(sorted(idle), more):
            yield lent | set(some)

    def is_settled(self, request: Request, policy: Policy) -> bool:
        """Whether nobody could stop it, and nothing says when it ends."""
        if request.walltime is not None:
            return False
        sensitive = policy.kind is Kind.SENSITIVE and self.pool.settings.rank is Rank.CLASS
        return sensitive or not request.preemptible or self.is_protected(request)

    def is_protected(self, request: Request) -> bool:
        if request.terms.sensitive:
            return True
        if self.pool.settings.rank is not Rank.CLASS:
            return False
        mine = request.terms.preemption_class
        unsaved = request.stop_policy.checkpoint is Checkpoint.NONE and mine >= UNSAVED
        return mine >= HIGHEST or (unsaved and self.pool.settings.protect_unsaved)

    def place(self, policy: Policy, nodes: set[str]) -> int:
        """At home only with all of its nodes."""
        return IN_SHARE if nodes <= self.home(policy) else BORROWED

    @property
    def live(self) -> list[Allocation]:
        every = self.state.allocations.values()
        return [each for each in every if each.live and each.pool_id == self.pool.id]


def _was_claimed(each: Allocation) -> bool:
    return each.leaving and each.reason is not None and each.reason.code is Code.SENSITIVE_CLAIM


def check_lending(now: Lending) -> None:
    for lender in now.policies:
        lent = now.strangers(lender)
        if len(lent) > now.most_lent(lender):
            raise Broken(f"{lender.name} lends {sorted(lent)}, at most {now.most_lent(lender)}")
    for each in now.live:
        request, policy = now.state.requests[each.request_id], now.state.policies[each.policy_id]
        abroad = {
            m.node_id
            for m in each.members
            if now.owners.get(m.node_id, policy.id) != policy.id
            and not (request.owner and now.claimed(m.node_id) == request.owner)
        }
        if abroad and (now.is_settled(request, policy) or not policy.allow_borrowing):
            raise Broken(f"{each.id} sits on {sorted(abroad)}, and is never lent anything")

"""Claims: nodes that are kept for one user's sensitive work.

A claim is granted or refused at once, over all nodes that it names or none, and never waits. Other
work there is asked to save itself and to leave; meanwhile the node is already the claimant's, so
that no other work is put on it. Work that is never stopped is not stopped for a claim either.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cede.engine.admin.fleet import find_node
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.lifecycle.stopping import request_stop
from cede.engine.rights.price import Shield
from cede.engine.rights.standing import IN_SHARE
from cede.engine.state.state import State
from cede.engine.steps.earmarks import drop
from cede.engine.victims.pricing import shield
from cede.model import bounds
from cede.model.allocation import Allocation
from cede.model.errors import Conflict, Invalid
from cede.model.lifecycle import RequestStatus
from cede.model.node import Node
from cede.model.policy import Kind
from cede.model.reason import Code, Reason
from cede.model.request import Request
from cede.model.terms import CLASS_MAX


@dataclass(frozen=True, slots=True)
class Claimed:
    """The result of a claim: its nodes, and the allocations that are stopped for it."""

    nodes: tuple[Node, ...]
    victims: tuple[str, ...] = ()


def claim(state: State, node_names: Iterable[str], claimant: str, now: int) -> Claimed:
    """Keep nodes for the sensitive work of one user; a repeated call changes nothing."""
    state.now = now
    if not claimant:
        raise Invalid("for", "must name whose sensitive work the nodes are for")
    nodes = _named(state, node_names)
    new = [each for each in nodes if each.claimed_by != claimant]
    for node in new:
        _check_free(node)
        _check_work(state, node, claimant)
    for node in new:
        _take_promises(state, node, claimant)
        state.put(replace(node, claimed_by=claimant))
        state.emit("node_claimed", pool_id=node.pool_id, node=node.name, claimant=claimant)
    victims = [each for node in new for each in _clear(state, node, claimant)]
    return Claimed(tuple(state.nodes[each.id] for each in nodes), tuple(victims))


def unclaim(state: State, node_names: Iterable[str], now: int, by: str | None = None) -> Claimed:
    """Give claimed nodes back, once no work of their claimant runs there; with `by` only if they
    are that user's claim.
    """
    state.now = now
    nodes = _named(state, node_names)
    for node in nodes:
        if not node.claimed_by:
            raise Conflict("not_claimed", f"node {node.name} is not claimed by anybody")
        if by is not None and node.claimed_by != by:
            raise Conflict("node_claimed", f"node {node.name} is claimed by {node.claimed_by}")
        for allocation in state.on_node(node):
            request = state.requests[allocation.request_id]
            if may_use(request, node.claimed_by):
                raise Conflict(
                    "in_use",
                    f"node {node.name} runs {request.id} of {node.claimed_by}, who claimed it; "
                    "let that end, or cancel it",
                )
    for node in nodes:
        _take_promises(state, node, "")  # the claimant's too: the node may be another's home
        state.put(replace(node, claimed_by=""))
        state.emit("node_unclaimed", pool_id=node.pool_id, node=node.name, claimant=node.claimed_by)
    return Claimed(tuple(state.nodes[each.id] for each in nodes))


def _named(state: State, names: Iterable[str]) -> list[Node]:
    found = {node.id: node for node in (find_node(state, each) for each in names)}
    if not 1 <= len(found) <= bounds.BULK_MAX:
        raise Invalid("nodes", f"must name 1 to {bounds.BULK_MAX} nodes")
    return list(found.values())


# Whether a claim is granted -------------------------------------------------------------------


def _check_free(node: Node) -> None:
    if node.claimed_by:
        raise Conflict("node_claimed", f"node {node.name} is claimed by {node.claimed_by} already")
    if not node.usable:
        raise Conflict("node_out", f"node {node.name} is {node.state}; claim one that is ready")


def _check_work(state: State, node: Node, claimant: str) -> None:
    for allocation in state.on_node(node):
        request = state.requests[allocation.request_id]
        if may_use(request, claimant) or _is_leaving(request):
            continue
        why = _held_fast(state, state.ledgers[allocation.pool_id], allocation)
        if why is not None:
            raise Conflict(
                "node_held",
                f"node {node.name} holds {request.id}, which is not stopped for anybody ({why}); "
                "claim another one",
            )


def _held_fast(state: State, ledger: PoolLedger, allocation: Allocation) -> str | None:
    """Why a holder is not stopped for a claim. Its first seconds and its near end protect it only
    from waiters: a claim is immediate.
    """
    holding = ledger.holdings[allocation.id]
    terms = state.requests[allocation.request_id].terms
    if terms.preemption_class >= CLASS_MAX:
        return f"class {CLASS_MAX}"
    if not allocation.preemptible or holding.safe:
        return "non-preemptible"
    found = shield(state, ledger, holding)
    if found is not None and found is not Shield.NEAR_COMPLETION:
        return str(found)
    kind = ledger.policies[holding.policy_id].kind
    if kind is Kind.SERVICE and ledger.rights(holding.id) == IN_SHARE:
        return "a service at home"
    return None


def may_use(request: Request, claimant: str) -> bool:
    """Whether a request is the sensitive work that a node was claimed for."""
    return request.terms.sensitive and request.owner == claimant


def _is_leaving(request: Request) -> bool:
    return request.status is RequestStatus.PREEMPTING


# Effects of a claim ---------------------------------------------------------------------------


def _take_promises(state: State, node: Node, claimant: str) -> None:
    """Take the node's promises and withheld capacity from waiters that may not use it; they wait
    again.
    """
    if node.pool_id is None:
        return
    on_it = state.inventories[node.pool_id].spots[node.id].holdings
    for owner_id in [each for each, (held, _) in on_it.items() if held.earmark]:
        if not may_use(state.requests[owner_id], claimant):
            drop(state, owner_id)
    for head_id in list(state.ledgers[node.pool_id].withheld):
        head = state.requests[head_id]
        kept = () if head.withhold is None else head.withhold.footprint
        if node.id in dict(kept) and not may_use(head, claimant):
            state.put(replace(head, withhold=None, bypassed=0))


def _clear(state: State, node: Node, claimant: str) -> list[str]:
    """Stop other work on a node; returns the stopped allocations."""
    stopped = []
    for allocation in state.on_node(node):
        request = state.requests[allocation.request_id]
        if may_use(request, claimant):
            continue
        if _is_leaving(request):
            # It does not go on if its beneficiary gives up.
            state.put(replace(allocation, taken_for=None))
            continue
        names = {"pool": state.pools[allocation.pool_id].name, "node": node.name}
        policy = state.policies[allocation.policy_id].name
        reason = Reason(Code.SENSITIVE_CLAIM, {**names, "policy": policy, "claimant": claimant})
        request_stop(state, allocation.id, reason, taken_for=None, saves=True)
        stopped.append(allocation.id)
    return stopped

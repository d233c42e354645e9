"""Changes that would help a waiter, each tried on the real engine and taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from cede.engine.admin import claims, edits
from cede.engine.decide import decide
from cede.engine.ledger.account import (
    free_now,
    headroom,
    missing,
    own_bounds,
    smallest,
    taken_of_reserve,
)
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.lifecycle import endings
from cede.engine.nodes.placement import suits
from cede.engine.state.state import State
from cede.engine.state.trial import what_if
from cede.model.amounts import Amounts
from cede.model.errors import CedeError
from cede.model.lifecycle import RequestStatus
from cede.model.node import Node
from cede.model.policy import Policy
from cede.model.request import Request

# Single holders tried as "if this one ended"; more would make a reader slow down the writer.
_HOLDERS_TRIED = 8


def changes(
    state: State, ledger: PoolLedger, request: Request, policy: Policy, demand: Amounts
) -> Iterator[dict[str, Any]]:
    """The smallest changes of each kind (reserve, limit, size, a claim's or a holder's end) that
    would start it now.
    """
    for change, make in _tries(state, ledger, request, policy, demand):
        outcome = _outcome(state, request.id, make)
        if outcome is not None:
            yield {**change, "then": outcome}


def _tries(
    state: State, ledger: PoolLedger, request: Request, policy: Policy, demand: Amounts
) -> Iterator[tuple[dict[str, Any], Callable[[], object]]]:
    used = ledger.used[policy.id]
    raised = {**policy.limit}
    for key in demand:
        if key in raised:
            raised[key] = max(raised[key], used.get(key, 0) + demand[key])
    if raised != policy.limit:
        change = {"change": "limit", "policy": policy.name, "to": raised}
        yield change, lambda: edits.update_policy(state, policy.id, limit=raised)
    held = used if request.preemptible else taken_of_reserve(ledger, policy.id)
    reserved = {**policy.reserved}
    for key in demand:
        if key in ledger.pool.capacity and (key in ledger.counting or not request.preemptible):
            reserved[key] = max(reserved.get(key, 0), held.get(key, 0) + demand[key])
    if reserved != policy.reserved:
        change = {"change": "reserve", "policy": policy.name, "to": reserved}
        yield change, lambda: edits.update_policy(state, policy.id, reserved=reserved)
    smaller = _smaller(ledger, request, policy, demand)
    if smaller is not None:
        change = {"change": "size", "to": smaller}
        yield change, lambda: state.put(replace(request, amounts=smaller))
    for node in claimed_nodes(ledger, request, policy)[:_HOLDERS_TRIED]:
        change = {"change": "unclaim", "node": node.name, "claimed_by": node.claimed_by}
        yield change, _unclaim(state, node)
    for holder_id in _likely_holders(ledger, demand):
        owner = state.requests[state.allocations[holder_id].request_id]
        change = {"change": "holder_ends", "request": owner.id}
        yield change, _end(state, owner)


def claimed_nodes(ledger: PoolLedger, request: Request, policy: Policy) -> list[Node]:
    """Nodes that would suit a waiter and are claimed for somebody else."""
    key = ledger.queue_of(policy.id, request)
    if ledger.inventory is None or key.form is None:
        return []
    nodes = [
        ledger.inventory.spots[node_id].node
        for node_id, who in ledger.inventory.claimed.items()
        if who != key.claimant
    ]
    return [each for each in nodes if each.usable and suits(each, key.form)]


def _unclaim(state: State, node: Node) -> Callable[[], object]:
    return lambda: claims.unclaim(state, [node.id], state.now)


def _end(state: State, owner: Request) -> Callable[[], object]:
    return lambda: endings.finish(state, owner, RequestStatus.RELEASED, None)


def _smaller(
    ledger: PoolLedger, request: Request, policy: Policy, demand: Amounts
) -> Amounts | None:
    """The same request cut down to what is free; None when a key is used up."""
    own = headroom(own_bounds(ledger, ledger.queue_of(policy.id, request))) or {}
    room = smallest((own, free_now(ledger)))
    cut = {key: min(amount, room[key]) for key, amount in demand.items()}
    if any(amount <= 0 for amount in cut.values()) or cut == dict(demand):
        return None
    return {**request.amounts, **cut}


def _likely_holders(ledger: PoolLedger, demand: Amounts) -> list[str]:
    """Holders that have what is missing: the smallest that suffice come first."""
    short = missing(demand, free_now(ledger))
    enough = [
        h
        for h in ledger.holdings.values()
        if not h.earmark and all(h.amounts.get(key, 0) >= need for key, need in short.items())
    ]
    enough.sort(key=lambda h: (sum(h.amounts.values()), -h.index))
    return [h.id for h in enough[:_HOLDERS_TRIED]]


def _outcome(state: State, request_id: str, make: Callable[[], object]) -> str | None:
    """What becomes of the waiter after a change: it starts, or is promised its capacity, or
    neither.
    """
    with what_if(state):
        try:
            make()
        except CedeError:
            return None
        decide(state, state.now)
        request = state.requests[request_id]
        if request.status is RequestStatus.ALLOCATED:
            return "starts"
        return "promised" if request.earmark is not None else None

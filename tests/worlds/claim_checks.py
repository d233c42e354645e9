"""What a claim may do, said once more without the engine's own bookkeeping: it is granted or
refused at once, by who sits on the node; nobody is stopped for it who is stopped for nobody.

That nobody else starts on a claimed node is recounted with every state (S29); that whoever may use
it, or gets it back, does not wait beside it follows from whose a node is (`lending`).
"""

from __future__ import annotations

from cede.engine.admin import claims
from cede.engine.rights.standing import IN_SHARE
from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.errors import Conflict
from cede.model.lifecycle import AllocationState
from cede.model.policy import Kind

from .checks import Broken
from .class_checks import HIGHEST, Classes

CLAIMANT = "ann"


def claim(state: State, node_id: str, now: int) -> None:
    """One claim, judged by what it finds and by what it leaves."""
    before = [each for each in _on(state, node_id) if not each.leaving]
    before = [each for each in before if each.state is not AllocationState.LOST]
    others = [each for each in before if not _is_hers(state, each)]
    fast = [each.id for each in others if _stays(state, each)]
    out = not state.nodes[node_id].usable
    try:
        claims.claim(state, [node_id], CLAIMANT, now)
    except Conflict:
        if not fast and not out:
            raise Broken(f"the claim of {node_id} is refused, and nobody there is safe") from None
        return
    if fast or out:
        raise Broken(f"{fast} are stopped for a claim of {node_id}")
    for each in before:
        held = state.allocations[each.id]
        if held.leaving == _is_hers(state, each):
            raise Broken(f"{node_id} is claimed, and {each.id} is {held.state}")


def unclaim(state: State, node_id: str, now: int) -> None:
    """The node is everybody's again, unless its claimant's work is on it."""
    hers = [each.id for each in _on(state, node_id) if _is_hers(state, each)]
    try:
        claims.unclaim(state, [node_id], now)
    except Conflict:
        if not hers:
            raise Broken(f"{node_id} is not given back, and nothing runs there") from None
        return
    if hers or state.nodes[node_id].claimed_by:
        raise Broken(f"{node_id} is given back under {hers}")


def _on(state: State, node_id: str) -> list[Allocation]:
    live = [each for each in state.allocations.values() if each.live]
    return [each for each in live if any(one.node_id == node_id for one in each.members)]


def _is_hers(state: State, each: Allocation) -> bool:
    request = state.requests[each.request_id]
    return request.terms.sensitive and request.owner == CLAIMANT


def _stays(state: State, each: Allocation) -> bool:
    """Who is not stopped for a claim either; that it ends soon is no reason."""
    now = Classes(state, state.pools[each.pool_id])
    request, policy = state.requests[each.request_id], state.policies[each.policy_id]
    at_home = policy.kind is Kind.SERVICE and now.rights[each.id] == IN_SHARE
    sensitive = policy.kind is Kind.SENSITIVE or request.terms.preemption_class >= HIGHEST
    return not each.preemptible or now.is_protected(request) or sensitive or at_home

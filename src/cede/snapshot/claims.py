"""Claims in a snapshot: claimed nodes, and claims to be made before the plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cede.engine.admin.claims import may_use
from cede.engine.state.state import State
from cede.model.lifecycle import AllocationState
from cede.snapshot.fields import SnapshotError, entries, entry, text

CLAIM = frozenset({"nodes", "for"})


@dataclass(frozen=True, slots=True)
class Asked:
    """A claim that is made before a plan's first pass."""

    nodes: tuple[str, ...]
    claimant: str


def read_claims(top: Any) -> list[Asked]:
    """`claims: [{nodes: [name, …], for: user}, …]`, in the order in which they are made."""
    found = []
    for path, value in entries(top, "claims"):
        fields = entry(value, path, CLAIM)
        if not (claimant := text(fields, path, "for")):
            raise SnapshotError(f"{path}.for", "must name whose sensitive work the nodes are for")
        names = entries(fields, "nodes", path)
        for where, name in names:
            if not isinstance(name, str):
                raise SnapshotError(where, "must be a node's name")
        if not names:
            raise SnapshotError(f"{path}.nodes", "must name a node")
        found.append(Asked(tuple(str(name) for _, name in names), claimant))
    return found


def check_claims(state: State) -> None:
    """Refuse a holding on a claimed node, staying or promised, that is not its claimant's sensitive
    work.
    """
    for number, node in enumerate(state.nodes.values()):
        if not node.claimed_by or node.pool_id is None:
            continue
        for held, _ in state.inventories[node.pool_id].spots[node.id].holdings.values():
            whose = held.id if held.earmark else state.allocations[held.id].request_id
            if not held.earmark and state.allocations[held.id].state is AllocationState.LOST:
                continue  # told to leave, and never reported its end
            if not held.leaving and not may_use(state.requests[whose], node.claimed_by):
                problem = f"{whose} is there, and is not sensitive work of {node.claimed_by}"
                raise SnapshotError(f"nodes[{number}].claimed_by", problem)

"""What the state is made of: the kinds of entities, and what of each concerns the indexes."""

from __future__ import annotations

from typing import Any

from cede.model.allocation import Allocation
from cede.model.lifecycle import AllocationState
from cede.model.node import Node
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.tenant import Tenant

Entity = Pool | Node | Policy | Tenant | Request | Allocation


def place_of(node: Node) -> tuple[Any, ...]:
    """What of a node concerns who may wait where."""
    return (node.pool_id, node.amounts, node.labels, node.fingerprint, node.devices)


def may_go_on(allocation: Allocation) -> bool:
    """Whether a victim could still be let go on: it was not told to stop, at most to save."""
    if not allocation.leaving or allocation.taken_for is None:
        return False
    return not allocation.told or allocation.state is AllocationState.CHECKPOINTING


def table_of(entity: Entity) -> str:
    return _TABLES[type(entity)]


_TABLES: dict[type[Any], str] = {
    Pool: "pools",
    Node: "nodes",
    Policy: "policies",
    Tenant: "tenants",
    Request: "requests",
    Allocation: "allocations",
}


def gone(entity: Entity) -> bool:
    return (isinstance(entity, Request) and entity.ended) or (
        isinstance(entity, Allocation) and not entity.live
    )

"""The kinds of entities in the state, and the fields of them that the indexes use."""

from __future__ import annotations

from typing import Any

from cede.model.allocation import Allocation
from cede.model.node import Node
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.tenant import Tenant

Entity = Pool | Node | Policy | Tenant | Request | Allocation


class Nodes(dict[str, Node]):
    """Nodes by id, with an index by name; the name of a node never changes."""

    def __init__(self) -> None:
        super().__init__()
        self._ids: dict[str, str] = {}

    def __setitem__(self, node_id: str, node: Node) -> None:
        super().__setitem__(node_id, node)
        self._ids[node.name] = node_id

    def __delitem__(self, node_id: str) -> None:
        del self._ids[self[node_id].name]
        super().__delitem__(node_id)

    def named(self, name: str) -> Node | None:
        node_id = self._ids.get(name)
        return None if node_id is None else self[node_id]


def place_of(node: Node) -> tuple[Any, ...]:
    """The properties of a node that decide which requests may wait in a pool."""
    return (
        node.pool_id, node.amounts, node.labels, node.fingerprint, node.devices, node.folder,
    )  # fmt: skip


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

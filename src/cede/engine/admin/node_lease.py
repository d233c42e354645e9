"""How long the work on a node survives without its server: its pool's `node_lease`.

The server gives up a silent node's work after this time and not before, so a shorter lease counts
only once every longer promised one is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cede.engine.state.state import State
from cede.model import bounds
from cede.model.node import SILENT_AFTER, Node


def lease_of(state: State, node: Node) -> int:
    """The lease of a node in its pool; never so short that a late heartbeat ends it."""
    pool = None if node.pool_id is None else state.pools.get(node.pool_id)
    wanted = bounds.NODE_LEASE_DEFAULT if pool is None else pool.settings.node_lease
    return max(wanted, SILENT_AFTER * node.heartbeat)


def leased(state: State, node: Node) -> Node:
    """A node with the lease of its pool. Heartbeats that are answered before this is committed
    still promise the old one.
    """
    lease = lease_of(state, node)
    if lease >= node.lease:
        return node if lease == node.lease else replace(node, lease=lease)
    promised = state.now + node.lease + bounds.KILL_GRACE
    return replace(node, lease=lease, promised=max(node.promised, promised))


def put_leases(state: State, nodes: Iterable[Node]) -> None:
    """Give nodes the lease of their present pool."""
    for node in nodes:
        if (became := leased(state, node)) is not node:
            state.put(became)

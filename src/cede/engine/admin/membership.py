"""The pool of a node: the one whose labels it has. A node with the labels of two pools is refused,
and so is a move of a node that holds work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cede.engine.admin.node_lease import leased
from cede.engine.state.state import State
from cede.model.amounts import total
from cede.model.errors import Conflict, Invalid
from cede.model.node import Node, matches, parse_labels
from cede.model.pool import Pool

# As many as fit in a sentence.
_NAMED_MAX = 10


def pool_for(state: State, node: Node) -> str | None:
    found = [
        pool
        for pool in state.pools.values()
        if pool.nodes is not None and matches(node.labels, pool.nodes)
    ]
    if len(found) > 1:
        names = " and ".join(sorted(pool.name for pool in found))
        raise Conflict("two_pools", f"the labels of node {node.name} match the pools {names}")
    return found[0].id if found else None


def gather(state: State, selector: Mapping[str, str], pool_id: str | None = None) -> list[Node]:
    """The registered nodes that match a pool's labels; none may be in another pool."""
    found = [each for each in state.nodes.values() if matches(each.labels, selector)]
    for node in found:
        if node.pool_id is not None and node.pool_id != pool_id:
            name = state.pools[node.pool_id].name
            raise Conflict("node_taken", f"node {node.name} is in pool {name} already")
    return found


def reselect(state: State, pool: Pool, labels: object) -> Pool:
    """A pool with other labels and the nodes that have them. Nodes without these labels leave it,
    if they hold no work.
    """
    if pool.nodes is None:
        raise Invalid(
            "nodes",
            f"pool {pool.name} is only counted; make another pool for nodes, of the same policies",
        )
    selector = parse_labels(labels, "nodes")
    gather(state, selector, pool.id)
    leave(state, pool, selector)
    return join(state, pool, selector)


def leave(state: State, pool: Pool, selector: Mapping[str, str]) -> None:
    """Take the nodes without these labels out of a pool."""
    others = [each for each in state.nodes.values() if each.pool_id == pool.id]
    leaving = [each for each in others if not matches(each.labels, selector)]
    busy = sorted(each.name for each in leaving if state.on_node(each))
    if busy:
        raise Conflict(
            "in_use",
            f"these nodes hold work and would leave pool {pool.name}: "
            f"{', '.join(busy[:_NAMED_MAX])}; drain them first: cede node drain NODE",
        )
    for node in leaving:
        drop_promises(state, node)
        state.put(leased(state, replace(node, pool_id=None)))


def join(state: State, pool: Pool, selector: Mapping[str, str]) -> Pool:
    """A pool with the nodes that have these labels; the caller puts the pool into the state."""
    mine = gather(state, selector, pool.id)
    for node in mine:
        if node.pool_id is None:
            state.put(replace(node, pool_id=pool.id))
    capacity = total(each.amounts for each in mine)
    return replace(pool, nodes=selector, capacity=capacity, edited=state.next_index())


def drop_promises(state: State, node: Node) -> None:
    """Drop the earmarks on a node; their owners wait again."""
    if node.pool_id is None:
        return
    spot = state.inventories[node.pool_id].spots[node.id]
    for owner_id in [each for each, (held, _) in spot.holdings.items() if held.earmark]:
        state.put(replace(state.requests[owner_id], earmark=None))

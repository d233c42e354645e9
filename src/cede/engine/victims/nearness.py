"""Among sets of victims of equal cost, one on nodes near each other.

A gang that wants its tasks together is helped most by victims of one topology group, or of groups
that share a long path. The cheapest set bounds the cost; below each path, the longest first, a set
of no higher cost is searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby

from cede.engine.nodes.inventory import NodeInventory
from cede.engine.nodes.topology import paths
from cede.engine.victims.cheapest import Choice
from cede.model import bounds
from cede.model.shape import Form, Topology

# The numbers by which sets of victims are compared before their nodes: rights, cost, rank, size.
Paid = tuple[float, ...]


def nearest(
    inventory: NodeInventory,
    form: Form,
    choice: Choice,
    below: Callable[[str], Choice],
    paid: Callable[[Choice], Paid],
) -> Choice:
    """The choice `below` the longest path for which no more is `paid` than for `choice`."""
    wants = form.topology is Topology.TIGHT and len(inventory.groups) > 1
    if not wants or not choice.victims:
        return choice
    most = paid(choice)
    for _, paths_ in groupby(_longest_first(inventory, form), key=_depth):
        found = [each for each in map(below, paths_) if each.victims and paid(each) <= most]
        if found:  # as near as possible; then the newest, as everywhere
            return min(found, key=lambda each: sorted(one.tie for one in each.victims or ()))
    return choice


def _depth(path: str) -> int:
    return -path.count("/")


def _longest_first(inventory: NodeInventory, form: Form) -> Iterator[str]:
    """The paths with enough nodes, without the common root; a bounded number of them."""
    nodes: dict[str, int] = {}
    for group, count in inventory.groups.items():
        for path in paths(group)[1:]:
            nodes[path] = nodes.get(path, 0) + count
    least = -(-form.tasks // form.per_node)
    enough = [path for path, count in nodes.items() if count >= least]
    yield from sorted(enough, key=lambda path: (_depth(path), path))[: bounds.VICTIM_PATHS_MAX]

"""Placement: where the tasks of a demand would sit, or that they do not fit.

All tasks of a demand are alike, so a node has room for a whole number of them, and a demand fits
exactly if those numbers add up to its tasks. Granting, promising, taking and explaining all ask
`place` (law 2). Topology is a wish, not a bound: `tight` takes as few groups as possible, near each
other, `spread` as many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sortedcontainers import SortedList

from cede.engine.nodes.eligible import EligibleNodes
from cede.engine.nodes.inventory import NodeInventory
from cede.engine.nodes.listing import Entry, Listing, Room, having
from cede.engine.nodes.topology import is_below, nearest
from cede.model.node import Node
from cede.model.shape import Footprint, Form, Topology

# By group: its nodes, and how many tasks each holds.
Groups = dict[str, list[tuple[str, int]]]


@dataclass(frozen=True, slots=True)
class View:
    """One of an inventory's two listings, with the rooms of some nodes replaced; `only` restricts
    it to eligible nodes.
    """

    inventory: NodeInventory
    listing: Listing
    instead: Mapping[str, Room] = field(default_factory=dict)
    only: EligibleNodes | None = None

    def allows(self, node_id: str) -> bool:
        return self.only is None or node_id in self.only

    def group_of(self, node_id: str) -> str:
        return self.inventory.spots[node_id].node.group

    def nodes(self, least: Room, group: str | None = None) -> Iterator[Entry]:
        """The nodes that have room for `least`, the best fit first; of one group if it is given."""
        instead = self.instead
        lists: Iterable[SortedList[Entry]] = (self.listing.nodes,)
        if group is not None:
            lists = (self.listing.by_group().nodes[group],)
            instead = {each: room for each, room in instead.items() if self.group_of(each) == group}
        elif self.only is not None:
            lists = self.only.lists(self.listing)
        for entry in having(lists, least, instead):
            if self.only is None or entry[1] in self.only:
                yield entry

    def groups(self, least: Room) -> Iterator[str]:
        """The groups that have room for `least`, from the one with the least free on."""
        known = self.listing.by_group()
        changed: dict[str, Room] = {}
        for node_id, room in self.instead.items():
            spot = self.inventory.spots[node_id]
            listed, group = self.listing.entry_of(spot)[0], spot.node.group
            free = changed.get(group, known.free[group])
            changed[group] = tuple(
                each + max(now, 0) - max(before, 0)
                for each, now, before in zip(free, room, listed, strict=True)
            )
        for _, group in having((known.order,), least, changed):
            yield group


def slots(room: Room, need: Room, most: int) -> int:
    """The number of tasks that a room holds, up to `most`."""
    for left, amount in zip(room, need, strict=True):
        if amount:
            most = min(most, left // amount)
    return max(most, 0)


def suits(node: Node, form: Form) -> bool:
    """Whether a node matches the demand's labels, fingerprint and folders, whatever is free on
    it.
    """
    if form.fingerprint and node.fingerprint != form.fingerprint:
        return False
    if form.folders and node.folder not in form.folders:
        return False
    labels = node.labels
    return all(labels.get(name) == text for name, text in form.labels)


def need_of(inventory: NodeInventory, form: Form) -> Room | None:
    """The room that one task needs; None if a key of it is on no node."""
    amounts = dict(form.amounts)
    return inventory.room(amounts) if all(key in inventory.keys for key in amounts) else None


def place(view: View, form: Form) -> Footprint | None:
    """The footprint of a demand: nodes and numbers of tasks; None if the tasks do not fit."""
    if len(parts := form.by_folder) > 1:
        found = [place(view, each) for each in parts]
        return tuple(each for one in found for each in one or ()) if all(found) else None
    need = need_of(view.inventory, form)
    if need is None:
        return None
    anywhere = _fill(_fitting(view, form, need), form.tasks)
    if anywhere is None or form.topology is Topology.ANY or len(view.inventory.groups) == 1:
        return anywhere
    if form.topology is Topology.TIGHT:
        return _alone(view, form, need) or _tight(_grouped(view, form, need), form.tasks)
    return _spread(_grouped(view, form, need), form.tasks)


def _fitting(
    view: View, form: Form, need: Room, group: str | None = None
) -> Iterator[tuple[str, int]]:
    """The matching nodes, with the number of tasks that each holds, the best fit first."""
    spots = view.inventory.spots
    anywhere = not (form.fingerprint or form.labels or form.folders)
    for room, node_id in view.nodes(need, group):
        if anywhere or suits(spots[node_id].node, form):
            yield node_id, slots(room, need, form.per_node)


def _grouped(view: View, form: Form, need: Room) -> Groups:
    groups: Groups = {}
    for node_id, count in _fitting(view, form, need):
        groups.setdefault(view.group_of(node_id), []).append((node_id, count))
    return groups


def _fill(nodes: Iterable[tuple[str, int]], tasks: int) -> Footprint | None:
    taken: list[tuple[str, int]] = []
    for node_id, count in nodes:
        here = min(count, tasks)
        taken.append((node_id, here))
        tasks -= here
        if not tasks:
            return tuple(taken)
    return None


def _alone(view: View, form: Form, need: Room) -> Footprint | None:
    """The footprint in one group: of the groups that hold all tasks, the one with the least free,
    so that large groups stay whole.
    """
    for group in view.groups(tuple(form.tasks * amount for amount in need)):
        found = _fill(_fitting(view, form, need, group), form.tasks)
        if found is not None:
            return found
    return None


def _tight(groups: Groups, tasks: int) -> Footprint | None:
    """The footprint in as few groups as possible, near each other."""
    sizes = {name: sum(count for _, count in nodes) for name, nodes in groups.items()}
    return _fill((node for name in nearest(sizes, tasks) for node in groups[name]), tasks)


def _spread(groups: Groups, tasks: int) -> Footprint | None:
    """The footprint with one task to each group in turn, as long as it has room."""
    left = {name: [list(node) for node in groups[name]] for name in sorted(groups)}
    taken: dict[str, int] = {}
    while tasks:
        open_groups = [nodes for nodes in left.values() if nodes]
        if not open_groups:
            return None
        for nodes in open_groups[:tasks]:
            node_id, count = nodes[0]
            assert isinstance(node_id, str) and isinstance(count, int)
            taken[node_id] = taken.get(node_id, 0) + 1
            tasks -= 1
            if count == 1:
                nodes.pop(0)
            else:
                nodes[0][1] = count - 1
    return tuple(taken.items())


def possible(inventory: NodeInventory, form: Form) -> bool:
    """Whether the registered nodes could ever hold this form, whatever they hold now and whatever
    their state.
    """
    known = inventory.ever.get(form)
    if known is None:
        known = inventory.ever[form] = _possible(inventory, form)
    return known


def _possible(inventory: NodeInventory, form: Form) -> bool:
    need = need_of(inventory, form)
    if need is None:
        return False
    tasks = 0
    for spot in inventory.spots.values():
        if suits(spot.node, form):
            tasks += slots(inventory.room(spot.node.amounts), need, form.per_node)
            if tasks >= form.tasks:
                return True
    return False


def places_for(view: View, form: Form, below: str = "") -> int:
    """The number of tasks that find a place, up to the form's number; on all nodes, or on those
    whose topology group is below a path.
    """
    if len(parts := form.by_folder) > 1:
        return sum(places_for(view, each, below) for each in parts)
    need = need_of(view.inventory, form)
    if need is None:
        return 0
    found = 0
    for node_id, count in _fitting(view, form, need):
        if not below or is_below(view.group_of(node_id), below):
            found += count
        if found >= form.tasks:
            return form.tasks
    return found

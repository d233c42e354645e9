"""Nodes sorted by what is free on them, the scarce key first.

The first one from the smallest that fits is the best fit, so that whole nodes stay free. The same
order is kept by topology group and by part, but only from the first read on: most pools have one
group and no homes, and do not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge

from sortedcontainers import SortedList

from cede.engine.rights.cover import Holding
from cede.model.node import Node

Room = tuple[int, ...]  # by key, in the inventory's own order of keys
Entry = tuple[Room, str]  # a room, and the id of its node or the name of its group
# The policy that owns a node, its claimant, and whether others than its owner use it; "" is none.
Part = tuple[str, str, bool]


class Spot:
    """One node and what is on it."""

    __slots__ = ("free", "holdings", "node", "now", "part", "promise", "unheld")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.holdings: dict[str, tuple[Holding, int]] = {}  # by id, with the number of tasks
        self.free: Room = ()  # capacity minus holders
        self.unheld: Room = ()  # capacity minus staying holders
        self.now: Entry = ((), node.id)
        self.promise: Entry = ((), node.id)
        self.part: Part = ("", "", False)


def _sum(rooms: Iterable[Room]) -> Room:
    """The sum of rooms, of which negative amounts count as zero: a deficit of one node is no lack
    on others.
    """
    return tuple(sum(left for left in each if left > 0) for each in zip(*rooms, strict=True))


class Groups:
    """The nodes of each group, and the groups in the order of what is free in them."""

    def __init__(self, entries: Iterable[Entry], spots: Mapping[str, Spot]) -> None:
        listed: dict[str, list[Entry]] = {}
        for entry in entries:
            listed.setdefault(spots[entry[1]].node.group, []).append(entry)
        self.nodes = {group: SortedList(nodes) for group, nodes in listed.items()}
        self.free = {group: _sum(room for room, _ in nodes) for group, nodes in listed.items()}
        self.order = SortedList((free, group) for group, free in self.free.items())

    def add(self, entry: Entry, group: str) -> None:
        self.nodes.setdefault(group, SortedList()).add(entry)
        self._resize(group, entry[0], 1)

    def remove(self, entry: Entry, group: str) -> None:
        self.nodes[group].remove(entry)
        self._resize(group, entry[0], -1)

    def _resize(self, group: str, room: Room, sign: int) -> None:
        free = self.free.pop(group, None)
        if free is None:
            free = (0,) * len(room)
        else:
            self.order.remove((free, group))
        if self.nodes[group]:
            free = tuple(
                each + sign * left if left > 0 else each
                for each, left in zip(free, room, strict=True)
            )
            self.free[group] = free
            self.order.add((free, group))
        else:
            del self.nodes[group]


class Listing:
    """The usable nodes of an inventory, each with one of its two entries."""

    def __init__(self, spots: Mapping[str, Spot], entry_of: Callable[[Spot], Entry]) -> None:
        self._spots = spots
        self.entry_of = entry_of
        self.nodes: SortedList[Entry] = SortedList()
        self.grouped: Groups | None = None  # None until it is read
        self.parted: dict[Part, SortedList[Entry]] | None = None  # None until it is read

    def add(self, spot: Spot) -> None:
        entry = self.entry_of(spot)
        self.nodes.add(entry)
        if self.grouped is not None:
            self.grouped.add(entry, spot.node.group)
        if self.parted is not None:
            self.parted.setdefault(spot.part, SortedList()).add(entry)

    def remove(self, spot: Spot) -> None:
        entry = self.entry_of(spot)
        self.nodes.remove(entry)
        if self.grouped is not None:
            self.grouped.remove(entry, spot.node.group)
        if self.parted is not None:
            self.parted[spot.part].remove(entry)
            if not self.parted[spot.part]:
                del self.parted[spot.part]

    def by_group(self) -> Groups:
        if self.grouped is None:
            self.grouped = Groups(self.nodes, self._spots)
        return self.grouped

    def by_part(self) -> Mapping[Part, SortedList[Entry]]:
        if self.parted is None:
            listed: dict[Part, list[Entry]] = {}
            for entry in self.nodes:
                listed.setdefault(self._spots[entry[1]].part, []).append(entry)
            self.parted = {part: SortedList(nodes) for part, nodes in listed.items()}
        return self.parted


def having(
    lists: Iterable[SortedList[Entry]], least: Room, instead: Mapping[str, Room]
) -> Iterator[Entry]:
    """The entries of all lists that have room for `least`, the smallest first; `instead` replaces
    the rooms of some.
    """
    start = (least[:1], "")
    large = [listed for listed in lists if listed and listed[-1] >= start]
    entries: Iterator[Entry] = merge(*(listed.irange(start) for listed in large))
    if instead:
        others = sorted((room, name) for name, room in instead.items())
        entries = merge((each for each in entries if each[1] not in instead), others)
    for entry in entries:
        for left, amount in zip(entry[0], least, strict=True):
            if left < amount:
                break
        else:
            yield entry

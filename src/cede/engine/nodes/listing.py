"""Nodes sorted by what is free on them, the scarce key first.

The first one from the smallest that fits is the best fit, and whole nodes stay free. Once somebody
asks, the same is kept by topology group, and by whose the nodes are: most pools have one group
only, and no homes, and pay nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge

from sortedcontainers import SortedList

from cede.engine.rights.cover import Holding
from cede.model.node import Node

Room = tuple[int, ...]  # by key, in the inventory's own order of keys
Entry = tuple[Room, str]  # a room and whose it is: a node's id, or a group
# Whose home a node is, who claimed it, and whether others than its owner use it; "" is nobody.
Part = tuple[str, str, bool]


class Spot:
    """One node and what is on it."""

    __slots__ = ("free", "holdings", "node", "now", "part", "promise", "unheld")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.holdings: dict[str, tuple[Holding, int]] = {}  # by id: with how many tasks
        self.free: Room = ()  # what nobody holds
        self.unheld: Room = ()  # what nobody holds who stays
        self.now: Entry = ((), node.id)
        self.promise: Entry = ((), node.id)
        self.part: Part = ("", "", False)


def _sum(rooms: Iterable[Room]) -> Room:
    """Where one node has less than nothing left, the others lack nothing."""
    return tuple(sum(left for left in each if left > 0) for each in zip(*rooms, strict=True))


class Groups:
    """`nodes` of each group; the groups by what is free in them, in `order`."""

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
    """The usable nodes of an inventory, each by one of its entries."""

    def __init__(self, spots: Mapping[str, Spot], entry_of: Callable[[Spot], Entry]) -> None:
        self._spots = spots
        self.entry_of = entry_of
        self.nodes: SortedList[Entry] = SortedList()
        self.grouped: Groups | None = None  # until somebody asks
        self.parted: dict[Part, SortedList[Entry]] | None = None  # until somebody asks

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
    """Entries of all lists, from the smallest on, that have `least`; some rooms are read
    differently.
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

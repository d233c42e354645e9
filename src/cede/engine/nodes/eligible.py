"""The nodes of a pool that a waiter may use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sortedcontainers import SortedList

from cede.engine.nodes.listing import Entry, Listing, Part, Spot


@dataclass(frozen=True, slots=True)
class EligibleNodes:
    """Whole parts of the inventory and, of homes outside these parts, the idle nodes that are
    lent.
    """

    spots: Mapping[str, Spot]
    parts: frozenset[Part]
    idle: Mapping[str, SortedList[Entry]] = field(default_factory=dict)  # by owner

    def __contains__(self, node_id: str) -> bool:
        spot = self.spots[node_id]
        if spot.part in self.parts:
            return True
        lent = self.idle.get(spot.part[0])
        return lent is not None and spot.now in lent

    def lists(self, listing: Listing) -> Iterator[SortedList[Entry]]:
        """Its nodes in order, in as many lists as there are parts: each node in one."""
        parted = listing.by_part()
        for part in self.parts:
            if part in parted:
                yield parted[part]
        yield from self.idle.values()  # an idle node's two entries are equal

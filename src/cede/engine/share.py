"""Which holdings of a policy are inside its share, and which are borrowed.

Holdings fill the share non-preemptible first, then oldest first; a holding is in share if the
running sum that includes it stays within the share in every key that counts. So there is one cut
per policy: everything before it is in share, everything behind it is borrowed. The cut is kept by
two sorted lists and one sum, and moving it costs as many steps as holdings cross it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sortedcontainers import SortedList

from cede.engine.lane import Age
from cede.engine.standing import BORROWED, IN_SHARE
from cede.model.amounts import Amounts
from cede.model.shape import Footprint

NOTHING: Amounts = {}


@dataclass(frozen=True, slots=True)
class Holding:
    """What counts against a policy: a live allocation, or the earmark of a waiter."""

    id: str
    policy_id: str
    amounts: Amounts  # only what the pool counts
    preemptible: bool
    index: int
    earmark: bool = False
    leaving: bool = False  # on its way out: its capacity may be promised
    takeable: bool = False  # could be a victim
    age: Age | None = None  # of an earmark's owner
    footprint: Footprint = ()  # in a pool of nodes: where it sits
    each: Amounts = field(default_factory=lambda: NOTHING)  # and what one task takes there

    @property
    def place(self) -> tuple[bool, int, str]:
        return (self.preemptible, self.index, self.id)


Crossed = Callable[[str, int], None]


class Fill:
    """One policy's share and the holdings that fill it. `crossed` is told of every change of
    rights.
    """

    __slots__ = ("_amounts", "_behind", "_crossed", "_inside", "_keys", "_share", "_sum")

    def __init__(self, share: Amounts, keys: tuple[str, ...], crossed: Crossed) -> None:
        self._share = [share.get(key, 0) for key in keys]
        self._keys = keys
        self._sum = [0] * len(keys)
        self._inside: SortedList[tuple[bool, int, str]] = SortedList()
        self._behind: SortedList[tuple[bool, int, str]] = SortedList()
        self._amounts: dict[str, list[int]] = {}
        self._crossed = crossed

    def add(self, holding: Holding) -> None:
        self._amounts[holding.id] = [holding.amounts.get(key, 0) for key in self._keys]
        if self._behind and holding.place > self._behind[0]:
            self._behind.add(holding.place)
            self._crossed(holding.id, BORROWED)
            return
        self._inside.add(holding.place)
        self._count(holding.id, 1)
        self._crossed(holding.id, IN_SHARE)
        while self._over():
            last = self._inside.pop()
            self._behind.add(last)
            self._count(last[2], -1)
            self._crossed(last[2], BORROWED)

    def remove(self, holding: Holding) -> None:
        if holding.place in self._inside:
            self._inside.remove(holding.place)
            self._count(holding.id, -1)
        else:
            self._behind.remove(holding.place)
        del self._amounts[holding.id]
        while self._behind and self._has_room(self._behind[0][2]):
            first = self._behind.pop(0)
            self._inside.add(first)
            self._count(first[2], 1)
            self._crossed(first[2], IN_SHARE)

    def _count(self, holding_id: str, sign: int) -> None:
        for at, amount in enumerate(self._amounts[holding_id]):
            self._sum[at] += sign * amount

    def _over(self) -> bool:
        for at, share in enumerate(self._share):  # noqa: SIM110 - called for every holding
            if self._sum[at] > share:
                return True
        return False

    def _has_room(self, holding_id: str) -> bool:
        wanted = self._amounts[holding_id]
        return all(
            total + amount <= share
            for total, amount, share in zip(self._sum, wanted, self._share, strict=True)
        )

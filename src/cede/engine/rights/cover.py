"""The holdings that a share covers, and which policy's share it is.

Holdings fill a policy's share non-preemptible first, then the safest inside their task group, then
oldest first; a holding is in share if the running sum that includes it stays within the share in
every key that counts. So there is one cut per policy: everything before it is in share, everything
behind it is not. Holdings behind the cut are offered to the parent's share, which is first filled
by what shares below cover; so a holding's rights are how close to home it is covered. A cut is kept
by two sorted lists and one sum, and moving it costs as many steps as holdings cross it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from sortedcontainers import SortedList

from cede.engine.rights.standing import Age
from cede.model.amounts import Amounts, add_to, take_from
from cede.model.copying import replace
from cede.model.shape import Footprint

NOTHING: Amounts = {}


@dataclass(frozen=True, slots=True)
class Holding:
    """A live allocation or a waiter's earmark, as it counts against a policy."""

    id: str
    policy_id: str
    amounts: Amounts  # only the keys that the pool counts
    preemptible: bool
    index: int  # the place in the journal of its last start
    rank: int = 0
    task_group: str = ""
    band: int = 0  # its safety inside its task group's fair share; higher is safer
    safe: bool = False  # never stopped for a waiter, whatever its share is
    earmark: bool = False
    leaving: bool = False  # leaving: its capacity may be promised
    yields: bool = False  # leaving, and its place in the share is its beneficiary's
    may_go_on: bool = False  # leaving, and could still be let go on
    comes_back: bool = False  # could go on, or will wait again once it has stopped
    claimed_out: bool = False  # leaving because its node was claimed: the node is not lent any more
    takeable: bool = False  # could be a victim
    age: Age | None = None  # of an earmark's owner
    footprint: Footprint = ()  # in a pool of nodes: where it sits
    each: Amounts = field(default_factory=lambda: NOTHING)  # the amounts of one task there

    @property
    def place(self) -> Place:
        return (self.preemptible, -self.band, self.index, self.id)

    def counting(self, amounts: Amounts) -> Holding:
        """The same holding with other counted amounts."""
        return replace(self, amounts=amounts)

    def judged(self, band: int, safe: bool) -> Holding:
        """The same holding with the band that its task group's fair share gives it."""
        return replace(self, band=band, safe=safe)


Place = tuple[bool, int, int, str]
# Called with a holding that is now covered; or with one that is not, and whether it was before.
Covered = Callable[[Holding], None]
Uncovered = Callable[[Holding, bool], None]


class Fill:
    """One policy's share, and the holdings inside and behind its cut."""

    __slots__ = (
        "_behind",
        "_covered",
        "_holdings",
        "_inside",
        "_keys",
        "_settled",
        "_share",
        "_sum",
        "_uncovered",
        "below",
    )

    def __init__(
        self,
        share: Mapping[str, float],
        keys: tuple[str, ...],
        covered: Covered,
        uncovered: Uncovered,
    ) -> None:
        self._share: list[float] = [share.get(key, 0) for key in keys]
        self._keys = keys
        self._sum = [0] * len(keys)
        self.below: dict[str, int] = {}  # the part of that sum that shares below cover
        self._inside: SortedList[Place] = SortedList()
        self._behind: SortedList[Place] = SortedList()
        self._holdings: dict[str, Holding] = {}
        self._covered = covered
        self._uncovered = uncovered
        self._settled = True  # whether the cut is where it belongs

    def __contains__(self, holding_id: object) -> bool:
        return holding_id in self._holdings

    def add(self, holding: Holding) -> None:
        self._holdings[holding.id] = holding
        place = holding.place
        if self._behind and place > self._behind[0]:
            self._behind.add(place)
            self._uncovered(holding, False)
            return
        self._inside.add(place)
        self._count(holding.amounts, 1)
        if not self._over():
            self._covered(holding)
            return
        self._shrink(new=holding.id)  # it may itself be cut off, and was then never covered
        if place in self._inside:
            self._covered(holding)

    def add_many(self, holdings: Iterable[Holding]) -> None:
        """The same as adding each of them; a share that nothing fills yet is cut once."""
        placed = sorted([(each.place, each) for each in holdings], key=itemgetter(0))
        in_order = [holding for _, holding in placed]
        if self._holdings:
            for holding in in_order:
                self.add(holding)
            return
        self._holdings = {each.id: each for each in in_order}
        covered = 0
        for holding in in_order:
            if not self._has_room(holding):
                break
            self._count(holding.amounts, 1)
            covered += 1
        self._inside.update([place for place, _ in placed[:covered]])
        self._behind.update([place for place, _ in placed[covered:]])
        for holding in in_order[:covered]:
            self._covered(holding)
        for holding in in_order[covered:]:
            self._uncovered(holding, False)

    def remove(self, holding: Holding) -> bool:
        """Remove a holding; whether it was covered. The caller then calls `settle`."""
        del self._holdings[holding.id]
        place = holding.place
        if self._behind and place >= self._behind[0]:
            self._settled = self._settled and place > self._behind[0]  # it was first in line
            self._behind.remove(place)
            return False
        self._settled = False
        self._inside.remove(place)
        self._count(holding.amounts, -1)
        return True

    def shift(self, amounts: Amounts, sign: int) -> None:
        """Change what shares below cover, which fills first. The caller then calls `settle`."""
        self._settled = False
        self._count(amounts, sign)
        (add_to if sign > 0 else take_from)(self.below, amounts)

    def reshare(self, share: Mapping[str, float]) -> None:
        """Set another share. The caller then calls `settle`."""
        self._settled = False
        self._share = [share.get(key, 0) for key in self._keys]

    def settle(self) -> None:
        """Move the cut to its right place."""
        if self._settled:
            return
        self._settled = True
        self._shrink()
        while self._behind and self._has_room(first := self._holdings[self._behind[0][3]]):
            self._behind.pop(0)
            self._inside.add(first.place)
            self._count(first.amounts, 1)
            self._covered(first)

    def _shrink(self, new: str = "") -> None:
        while self._inside and self._over():
            last = self._holdings[self._inside.pop()[3]]
            self._behind.add(last.place)
            self._count(last.amounts, -1)
            self._uncovered(last, last.id != new)

    def _count(self, amounts: Amounts, sign: int) -> None:
        for at, key in enumerate(self._keys):
            amount = amounts.get(key)
            if amount:
                self._sum[at] += sign * amount

    def _over(self) -> bool:
        for at, share in enumerate(self._share):  # noqa: SIM110 - called for every holding
            if self._sum[at] > share:
                return True
        return False

    def _has_room(self, holding: Holding) -> bool:
        for at, key in enumerate(self._keys):
            if self._sum[at] + holding.amounts.get(key, 0) > self._share[at]:
                return False
        return True

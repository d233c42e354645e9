"""The waiters of one policy in one pool, in submit order, searchable by size.

A queue answers one question: which is the oldest waiter whose demand is within this room? It keeps
its waiters in chunks, each with the least demand of every key among its members, so that chunks in
which no waiter can fit are skipped whole. So the cost of a pass depends on the changes: a release
examines a few chunk heads, at any number of waiters.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterable, Iterator, Set
from typing import NamedTuple

from cede.engine.rights.standing import Age
from cede.model.amounts import Amounts, total_of_many, within
from cede.model.shape import Form
from cede.model.stopping import Checkpoint

BEGINNING: Age = (-1, -1, "")

_CHUNK_MAX = 256


class QueueKey(NamedTuple):
    """The common properties of waiters that differ only in size and age for every rule: policy,
    rank, preemptibility; in a pool of nodes the form, so that either all of them fit or none; the
    task group, where that has a fair share or a limit of its own.
    """

    policy_id: str
    preemptible: bool = True
    form: Form | None = None
    rank: int = 0
    task_group: str = ""
    limit: tuple[tuple[str, int], ...] = ()  # of the task group
    band: int = 0  # of those without a task group, once granted
    scored: tuple[str, Checkpoint] | None = None  # tenant and checkpoint, where a score orders
    settled: bool = False  # cannot be asked to leave, so no node is lent to it
    claimant: str = ""  # the owner of the claimed nodes that it may use

    @property
    def passing(self) -> bool:
        """Whether the queue may stay empty for good: it belongs to a task group or a pin."""
        return bool(self.task_group or (self.form and self.form.folders))


class Stand(NamedTuple):
    """The queue of a waiter, and the part of its demand that the pool counts."""

    key: QueueKey
    demand: Amounts


class _Chunk:
    """A part of a queue. `least` is a lower bound: exact when computed, `loose` after a removal."""

    __slots__ = ("ages", "least", "loose", "stale")

    def __init__(self, ages: list[Age]) -> None:
        self.ages = ages
        self.least: dict[str, int] = {}
        self.loose = False
        self.stale = True


class Queue:
    """Waiters in submit order, with a search for the first that fits."""

    __slots__ = ("_chunks", "_demands", "_least")

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        self._least: dict[str, int] = {}  # a lower bound on all demands
        self._demands: dict[str, Amounts] = {}

    def __len__(self) -> int:
        return len(self._demands)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._demands

    def __iter__(self) -> Iterator[str]:
        return (age[2] for chunk in self._chunks for age in chunk.ages)

    @property
    def members(self) -> Set[str]:
        """The ids of all waiters; asked for one it is faster than the queue itself."""
        return self._demands.keys()

    @property
    def oldest(self) -> Age | None:
        return self._chunks[0].ages[0] if self._chunks else None

    @property
    def least(self) -> Amounts:
        """A lower bound on all demands, by key."""
        return self._least

    def ages(self) -> Iterator[Age]:
        return (age for chunk in self._chunks for age in chunk.ages)

    def demand(self, request_id: str) -> Amounts:
        return self._demands[request_id]

    def wanted(self) -> dict[str, int]:
        """The sum of all demands."""
        return total_of_many(self._demands.values())

    def add(self, age: Age, demand: Amounts) -> None:
        self._demands[age[2]] = demand
        if not self._chunks:
            self._chunks.append(_Chunk([age]))
            self._least = dict(demand)
            return
        _lower(self._least, demand)
        place = self._place(age)
        chunk = self._chunks[place]
        insort(chunk.ages, age)
        if len(chunk.ages) > _CHUNK_MAX:
            half = len(chunk.ages) // 2
            self._chunks.insert(place + 1, _Chunk(chunk.ages[half:]))
            del chunk.ages[half:]
            chunk.stale = True
        elif not chunk.stale:
            _lower(chunk.least, demand)

    def add_many(self, ages: Iterable[Age], demand: Amounts) -> None:
        """Add many waiters with the same demand."""
        everybody = sorted([*self.ages(), *ages])
        if self._chunks:
            _lower(self._least, demand)
        else:
            self._least = dict(demand)
        self._demands.update(dict.fromkeys([age[2] for age in ages], demand))
        half = _CHUNK_MAX // 2
        self._chunks = [_Chunk(everybody[at : at + half]) for at in range(0, len(everybody), half)]

    def remove(self, age: Age) -> None:
        del self._demands[age[2]]
        place = self._place(age)
        chunk = self._chunks[place]
        at = bisect_left(chunk.ages, age)
        assert chunk.ages[at] == age, (chunk.ages[at], age)
        del chunk.ages[at]
        chunk.loose = True
        if not chunk.ages:
            del self._chunks[place]

    def first(
        self, room: Amounts, after: Age = BEGINNING, besides: Container[str] = ()
    ) -> Age | None:
        """The oldest waiter after `after`, not in `besides`, whose demand is within `room`."""
        if not self._chunks or not within(self._least, room):
            return None
        demands = self._demands
        start = self._place(after) if after is not BEGINNING else 0
        for place in range(start, len(self._chunks)):
            chunk = self._chunks[place]
            if chunk.stale:
                self._refresh(chunk)
            if not within(chunk.least, room):
                continue
            ages = chunk.ages
            begin = bisect_right(ages, after) if place == start else 0
            for at in range(begin, len(ages)):
                age = ages[at]
                if within(demands[age[2]], room) and age[2] not in besides:
                    return age
            if chunk.loose:  # the search has cost as much as making the bound exact
                self._refresh(chunk)
        if start == 0:  # all chunks were visited, so every chunk's bound is known
            self._least = _least_of(chunk.least for chunk in self._chunks)
        return None

    def _place(self, age: Age) -> int:
        """The chunk that holds, or would hold, this age."""
        low, high = 0, len(self._chunks) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._chunks[middle].ages[0] <= age:
                low = middle
            else:
                high = middle - 1
        return low

    def _refresh(self, chunk: _Chunk) -> None:
        chunk.least = _least_of(self._demands[age[2]] for age in chunk.ages)
        chunk.stale = chunk.loose = False


def _least_of(many: Iterable[Amounts]) -> dict[str, int]:
    """The least amount of every key in these amounts."""
    each = iter(many)
    least = dict(next(each))
    for amounts in each:
        _lower(least, amounts)
    return least


def _lower(least: dict[str, int], amounts: Amounts) -> None:
    for key, amount in least.items():
        other = amounts.get(key, 0)
        if other < amount:
            least[key] = other

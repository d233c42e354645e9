"""The waiters of a pool in standing order, filtered by a room.

A stream is one queue at one level of rights: a waiter is in the in-share stream of its queue if the
share still has room for it whole, and always in the borrowed one. A cursor merges all streams of a
pool and shows the first waiter in standing order that fits. While a cursor is in use rooms only
shrink, so a waiter that did not fit once need not be checked again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cede.engine.ledger.account import Allowance, Room, fits, headroom, own_bounds, share_bound
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.queue import BEGINNING, Queue, QueueKey
from cede.engine.ledger.task_groups import ABOVE_ALL
from cede.engine.rights.standing import BORROWED, IN_SHARE, Age, Standing
from cede.model.amounts import Amounts
from cede.model.shape import Form

_UNSEEN = -1

# Sorts as the queue does: highest standing, then least satisfied, then oldest.
Order = tuple[int, int, tuple[float, ...], Age]


def order(standing: Standing, age: Age, satisfaction: tuple[float, ...] = ()) -> Order:
    return (-standing[0], -standing[1], satisfaction, age)


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """One queue at one level of rights; compared by identity, which makes it a cheap key."""

    queue: Queue
    key: QueueKey
    rights: int
    standing: Standing

    @property
    def policy_id(self) -> str:
        return self.key.policy_id

    @property
    def preemptible(self) -> bool:
        return self.key.preemptible

    @property
    def form(self) -> Form | None:
        """The form of all its waiters, in a pool of nodes."""
        return self.key.form

    def band(self, ledger: PoolLedger) -> int:
        """The band of its next waiter: the waiters of a task group are alike."""
        if not self.preemptible:
            return ABOVE_ALL
        if not self.key.task_group or (oldest := self.queue.oldest) is None:
            return self.key.band
        return ledger.band(self.key, self.queue.demand(oldest[2]))

    def own_bounds(
        self,
        ledger: PoolLedger,
        *,
        alone: bool = False,
        promise: bool = False,
        gone: Amounts | None = None,
    ) -> list[Allowance]:
        """The bounds of the waiters' own policy at this level; `gone` of its share is used up."""
        found = own_bounds(ledger, self.key, alone=alone, promise=promise)
        if self.rights != BORROWED:
            share = share_bound(ledger, self.key, self.rights, self.band(ledger), gone)
            if share is not None:
                found.append(share)
        return found

    def own_room(self, ledger: PoolLedger) -> Room | None:
        """The room within all of them; None if there is none."""
        return headroom(self.own_bounds(ledger))


def streams(ledger: PoolLedger) -> list[Stream]:
    """Every stream of a pool. Non-preemptible work never borrows, so it has one level only, unless
    a fair share determines how close to home it is.
    """
    found: list[Stream] = []
    for key, queue in ledger.queues.items():
        if len(queue):
            found += streams_of(ledger, key)
    return found


def streams_of(ledger: PoolLedger, key: QueueKey) -> tuple[Stream, ...]:
    """The streams of one queue, the highest rights first."""
    known: tuple[Stream, ...] | None = ledger.streams.get(key)
    if known is None:
        known = tuple(_streams_of(ledger, key, ledger.queues[key]))
        ledger.streams[key] = known
    return known


def _streams_of(ledger: PoolLedger, key: QueueKey, queue: Queue) -> Iterator[Stream]:
    levels = [IN_SHARE]
    if ledger.balance is not None:
        pass  # the level of use orders them, and no share bounds them
    elif ledger.homes.decide:
        levels = list(ledger.homes.levels(key.policy_id, key.preemptible))
    elif key.preemptible or ledger.fair:
        above = ledger.levels[key.policy_id][1:]
        covers = [ledger.fair or any(ledger.policies[pid].reserved.values()) for pid, _ in above]
        levels += [IN_SHARE - at for at, any_of_it in enumerate(covers, 1) if any_of_it]
        levels.append(BORROWED)
    for rights in levels:
        yield Stream(queue, key, rights, ledger.standing(key.rank, rights))


class Candidate(NamedTuple):
    order: Order
    stream: Stream
    age: Age

    @property
    def request_id(self) -> str:
        return self.age[2]


class Cursor:
    """Walks to the first waiter that is within `room_of` its stream; `besides` are passed over.
    With `by_age`, equal standing goes by age where a score would order it.
    """

    def __init__(
        self,
        ledger: PoolLedger,
        among: list[Stream],
        room_of: Callable[[Stream], Room | None],
        besides: Container[str] = (),
        *,
        by_age: bool = False,
    ) -> None:
        self._ledger = ledger
        self._by_age = by_age
        self._room_of = room_of
        self._besides = besides
        # Until it comes first a stream stands at its oldest waiter, unchecked; the last number is
        # the ledger's version at which that waiter was found to fit.
        self._heap: list[tuple[Order, int, Stream, int]] = [
            (self.order_of(stream, oldest), number, stream, _UNSEEN)
            for number, stream in enumerate(among)
            if (oldest := stream.queue.oldest) is not None
        ]
        heapq.heapify(self._heap)

    def peek(self) -> Candidate | None:
        while self._heap:
            found, number, stream, version = self._heap[0]
            age = found[3]
            if version == _UNSEEN:
                heapq.heappop(self._heap)
                self._push(number, stream, BEGINNING)
                continue
            same = version == self._ledger.version and age[2] not in self._besides
            if not same and not self._still(stream, age):
                heapq.heappop(self._heap)
                self._push(number, stream, age)
                continue
            if not same and self._ledger.balance is not None:
                moved = self.order_of(stream, age)  # grants raise the level of use
                if moved != found:
                    place = (moved, number, stream, self._ledger.version)
                    heapq.heapreplace(self._heap, place)
                    continue
            return Candidate(found, stream, age)
        return None

    def skip(self) -> None:
        """Pass over the waiter that `peek` showed."""
        found, number, stream, _ = heapq.heappop(self._heap)
        self._push(number, stream, found[3])

    def skip_stream(self) -> None:
        """Pass over the whole stream of the waiter that `peek` showed."""
        heapq.heappop(self._heap)

    def _push(self, number: int, stream: Stream, after: Age) -> None:
        if not len(stream.queue) or (room := self._room_of(stream)) is None:
            return
        age = stream.queue.first(room, after, self._besides)
        if age is not None:
            found = self.order_of(stream, age)
            heapq.heappush(self._heap, (found, number, stream, self._ledger.version))

    def order_of(self, stream: Stream, age: Age) -> Order:
        scored = self._by_age and stream.key.scored is not None
        return order(stream.standing, age, () if scored else self._ledger.satisfaction(stream.key))

    def _still(self, stream: Stream, age: Age) -> bool:
        if age[2] not in stream.queue or age[2] in self._besides:
            return False
        room = self._room_of(stream)
        return room is not None and fits(stream.queue.demand(age[2]), room)

"""The usage of removed requests, by days of UTC.

Sums of allocations of requests that have ended, such that every report over whole days has the same
numbers before and after: held time belongs to the day in which it was held, waiting to the day of
the first grant, an attempt, its lost time and a request to the day of its end. Pure; rows come from
`retention` and go to `usage`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cede.model.amounts import add_to
from cede.model.bounds import DAY
from cede.model.wall import Wall
from cede.store.json_text import decode

Key = tuple[int, int, str, str, str, str, str]
KEYS = 7


class Held(NamedTuple):
    """One ended allocation. The owner of its request and its project are empty if unknown; `waited`
    is the waiting time of its request before the first attempt, None for later attempts.
    """

    request_id: str
    attempt: int
    pool_id: str
    policy_id: str
    tenant: str
    owner: str
    project: str
    nodes: int
    amounts: str
    begin: int
    end: int
    preempted: bool
    lost: int
    waited: int | None

    def end_day(self, wall: Wall) -> int:
        """The last day of a report that counts it: an end at midnight is of the day before."""
        return wall.day(max(0, self.end - 1))

    def key(self, day: int) -> Key:
        begun = self.begin // DAY
        return (day, begun, self.pool_id, self.policy_id, self.tenant, self.owner, self.project)


@dataclass(slots=True)
class Day:
    """One row of `usage_days` without its key."""

    node_time: int = 0
    amount_time: dict[str, int] = field(default_factory=dict)
    preempted_time: int = 0
    lost_time: dict[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def row(self, key: Key) -> tuple[Any, ...]:
        held = (self.node_time, times_text(self.amount_time), self.preempted_time)
        counted = (self.counts[name] for name in COUNTS)
        begun = (self.counts[name] for name in BEGUN)
        return (*key, *held, *counted, times_text(self.lost_time), *begun)

    def include(self, row: tuple[Any, ...]) -> None:
        """Add a stored row."""
        node_time, amount_time, preempted_time, *counts, lost_time, starts, wait_time = row[KEYS:]
        self.node_time += node_time
        add_to(self.amount_time, times_from(amount_time))
        self.preempted_time += preempted_time
        self.counts.update(dict(zip(COUNTS, counts, strict=True)))
        add_to(self.lost_time, times_from(lost_time))
        self.counts.update(dict(zip(BEGUN, (starts, wait_time), strict=True)))


COUNTS = ("attempts", "preempted", "requests_of_policy", "requests_of_pool", "requests_of_tenant")
BEGUN = ("starts", "wait_time")


def days_of(held: Iterable[Held], wall: Wall) -> dict[Key, Day]:
    """The sums of these allocations; all allocations of a request come together."""
    found: dict[Key, Day] = {}
    last: dict[tuple[str, str, str], Held] = {}
    for each in held:
        amounts = decode(each.amounts)
        for day, milliseconds in _parts(each, wall):
            row = found.setdefault(each.key(day), Day())
            row.node_time += each.nodes * milliseconds
            row.preempted_time += each.nodes * milliseconds if each.preempted else 0
            add_to(row.amount_time, {key: of * milliseconds for key, of in amounts.items()})
        row = found.setdefault(each.key(each.end_day(wall)), Day())
        # Reports name a key also if it was held for no time.
        add_to(row.amount_time, dict.fromkeys(amounts, 0))
        row.counts["attempts"] += 1
        row.counts["preempted"] += each.preempted
        if each.lost:
            add_to(row.lost_time, {key: of * each.lost for key, of in amounts.items()})
        if each.waited is not None:
            first = found.setdefault(each.key(wall.day(each.begin)), Day())
            first.counts["starts"] += 1
            first.counts["wait_time"] += each.waited
        for of, id_ in (("policy", each.policy_id), ("pool", each.pool_id), ("tenant", "")):
            place = (each.request_id, of, id_)
            if place not in last or (each.end, each.attempt) > (
                last[place].end,
                last[place].attempt,
            ):
                last[place] = each
    for (_, of, _), each in last.items():
        found[each.key(each.end_day(wall))].counts[f"requests_of_{of}"] += 1
    return found


def times_text(times: Mapping[str, int]) -> str:
    """Amounts times milliseconds do not fit into 64 bits, which is all that `json_text` takes."""
    return json.dumps(times, separators=(",", ":"))


def times_from(text: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(text)
    return found


def _parts(held: Held, wall: Wall) -> Iterator[tuple[int, int]]:
    """The days in which an allocation was held, and the time in each."""
    for day in range(wall.day(held.begin), held.end_day(wall) + 1):
        begin, end = wall.instant(day * DAY), wall.instant((day + 1) * DAY)
        milliseconds = min(held.end, end) - max(held.begin, begin)
        if milliseconds > 0:
            yield day, milliseconds

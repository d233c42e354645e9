"""Used, borrowed and waited-for amounts of a pool over time.

A level holds from its instant until the next one. Means over periods follow from that alone, so a
server that was away leaves no hole: while nothing is decided, nothing changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

# Means are shown to a thousandth of a unit.
_DIGITS = 3


class Level(NamedTuple):
    """Amounts of one key: capacity, held, the held part that no share covers, and waited for."""

    capacity: float = 0
    used: float = 0
    borrowed: float = 0
    waiting: float = 0

    def rounded(self) -> Level:
        return Level(*(round(each, _DIGITS) for each in self))


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of one pool from `at` on. `requests` is the number of waiters."""

    at: int
    keys: Mapping[str, Level] = field(default_factory=dict)
    requests: float = 0


def means(found: Sequence[Levels], edges: Sequence[int]) -> list[Levels | None]:
    """The mean of each period between two edges; None before the first level.

    `found` is in the order of time, and its last level holds to the end.
    """
    made: list[Levels | None] = []
    for begin, end in itertools.pairwise(edges):
        parts = list(_parts(found, begin, end))
        made.append(_mean(begin, parts) if parts else None)
    return made


def _parts(found: Sequence[Levels], begin: int, end: int) -> Iterator[tuple[Levels, int]]:
    """The levels within a period, each with the time for which it held."""
    first = _last_before(found, begin)
    for at in range(first, len(found)):
        level = found[at]
        if level.at >= end:
            return
        until = found[at + 1].at if at + 1 < len(found) else end
        time = min(until, end) - max(level.at, begin)
        if time > 0:
            yield level, time


def _last_before(found: Sequence[Levels], instant: int) -> int:
    low, high = 0, len(found)
    while low < high:
        middle = (low + high) // 2
        if found[middle].at <= instant:
            low = middle + 1
        else:
            high = middle
    return max(0, low - 1)


def _mean(begin: int, parts: Sequence[tuple[Levels, int]]) -> Levels:
    total = sum(time for _, time in parts)
    keys = sorted({key for levels, _ in parts for key in levels.keys})
    return Levels(
        begin,
        {
            key: Level(
                *(
                    _share((levels.keys.get(key, Level())[at], time) for levels, time in parts)
                    / total
                    for at in range(len(Level._fields))
                )
            ).rounded()
            for key in keys
        },
        round(_share((levels.requests, time) for levels, time in parts) / total, _DIGITS),
    )


def _share(parts: Iterable[tuple[float, int]]) -> float:
    return sum(value * time for value, time in parts)

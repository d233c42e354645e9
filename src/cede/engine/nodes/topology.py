"""The choice of topology groups for a demand that no single group holds.

A group's name is a path, such as `spine-1/rack-3`: groups that share more of its beginning are
nearer to each other. The fewest groups are taken, below as long a path as possible; there the
largest first, then the nearest to those taken, of equally near ones the larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nlargest
from itertools import accumulate

Sizes = Mapping[str, int]  # group: the number of tasks that it holds


def nearest(sizes: Sizes, tasks: int) -> list[str]:
    """The groups for this many tasks, in the order in which they are filled; all groups together
    hold them.
    """
    fewest = _fewest(sizes, tasks)
    below = _together(sizes, tasks, fewest)
    return _chosen({name: sizes[name] for name in below}, tasks, fewest)


def _fewest(sizes: Sizes, tasks: int) -> int:
    """The number of groups needed, if the largest are taken."""
    held = accumulate(sorted(sizes.values(), reverse=True))
    return next(number for number, enough in enumerate(held, 1) if enough >= tasks)


def is_below(name: str, path: str) -> bool:
    """Whether a group is at a path or below it."""
    return not path or name == path or name.startswith(f"{path}/")


def paths(name: str) -> list[str]:
    """The paths that a group is below, itself last: "", "a", "a/b" for a/b."""
    parts = name.split("/") if name else []
    return ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]


def _together(sizes: Sizes, tasks: int, fewest: int) -> list[str]:
    """The groups below the longest path at which the fewest groups are enough; of several such
    paths the one with the least room.
    """
    below: dict[str, list[str]] = {}
    depths: dict[str, int] = {}
    for name in sizes:
        for depth, path in enumerate(paths(name)):
            depths[path] = depth
            below.setdefault(path, []).append(name)
    rooms = {path: [sizes[name] for name in names] for path, names in below.items()}
    enough = [path for path, room in rooms.items() if sum(nlargest(fewest, room)) >= tasks]
    return below[min(enough, key=lambda path: (-depths[path], sum(rooms[path]), path))]


def _chosen(sizes: Sizes, tasks: int, fewest: int) -> list[str]:
    """The chosen groups, which hold the tasks and are near each other.

    The largest would do, and `spare` is their surplus. A nearer group replaces the smallest of them
    as long as the surplus allows it.
    """
    ordered = _by_nearness(sizes)
    planned = nlargest(fewest, ordered, key=sizes.__getitem__)
    left, spare = set(planned), sum(sizes[name] for name in planned) - tasks
    chosen: list[str] = []
    for name in ordered:
        while planned and planned[-1] not in left:
            planned.pop()
        if not planned:
            break
        instead_of = name if name in left else planned[-1]
        lost = sizes[instead_of] - sizes[name]
        if lost <= spare:
            spare -= lost
            left.remove(instead_of)
            chosen.append(name)
    return chosen


def _by_nearness(sizes: Sizes) -> list[str]:
    """The groups by nearness: the largest, then the nearest to those before it, then the larger.

    It is the order of a walk down the tree of paths that always turns first to the largest group.
    """
    largest: dict[str, int] = {}
    for name, size in sizes.items():
        for path in paths(name):
            largest[path] = max(size, largest.get(path, 0))

    def turns(name: str) -> list[tuple[int, str]]:
        return [*((-largest[path], path) for path in paths(name)[1:]), (-sizes[name], name)]

    return sorted(sizes, key=turns)

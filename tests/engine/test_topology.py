"""Which groups a demand takes that needs several, against every choice there is."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cede.engine.nodes.topology import nearest

NAMES = ["", "a", "b", "a/x", "a/y", "a/z", "b/x", "b/y", "a/x/1", "a/x/2", "a/y/1", "c/x/1"]
SIZES = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 5), min_size=1, max_size=6)

Sizes = dict[str, int]


def parts(name: str) -> tuple[str, ...]:
    return tuple(name.split("/")) if name else ()


def shared(*names: str) -> int:
    """How much of its beginning all of these paths have in common."""
    depth = 0
    for each in zip(*map(parts, names), strict=False):
        if len(set(each)) > 1:
            break
        depth += 1
    return depth


def choices(sizes: Sizes, tasks: int) -> list[frozenset[str]]:
    """All sets of the fewest groups that hold so many, those that share the longest path."""
    for count in range(1, len(sizes) + 1):
        found = [
            frozenset(each)
            for each in combinations(sizes, count)
            if sum(sizes[name] for name in each) >= tasks
        ]
        if found:
            longest = max(shared(*each) for each in found)
            return [each for each in found if shared(*each) == longest]
    raise AssertionError("they do not fit")


def steps(sizes: Sizes, open_: list[frozenset[str]]) -> list[str]:
    """The largest, then always the nearest to those taken, then the larger: as the docs say it."""
    taken: list[str] = []
    while len(taken) < len(open_[0]):
        left = {name for each in open_ for name in each} - set(taken)
        ranks = {
            name: (-max((shared(name, each) for each in taken), default=0), -sizes[name])
            for name in left
        }
        taken.append(min(left, key=lambda name: (ranks[name], parts(name))))
        open_ = [each for each in open_ if each >= set(taken)]
    return taken


@given(SIZES, st.data())
def test_no_more_groups_than_needed_and_as_near_as_can_be(
    sizes: Sizes, data: st.DataObject
) -> None:
    tasks = data.draw(st.integers(max(sizes.values()), sum(sizes.values())))
    chosen = nearest(sizes, tasks)
    possible = choices(sizes, tasks)
    assert frozenset(chosen) in possible and len(chosen) == len(set(chosen))
    room = sum(sizes[name] for name in chosen)
    assert room - sizes[chosen[-1]] < tasks <= room, "each is needed"
    path = "/".join(parts(chosen[0])[: shared(*chosen)])
    here = [each for each in possible if shared(path, *each) == shared(path)]
    assert chosen == steps(sizes, here)


STORIES: dict[str, tuple[Sizes, int, list[str]]] = {
    "the near one before the larger one": ({"a/1": 8, "a/2": 3, "b/1": 5}, 10, ["a/1", "a/2"]),
    "the larger one, where none is near": ({"a": 8, "b": 3, "c": 5}, 10, ["a", "c"]),
    "fewer before near": ({"a/1": 8, "a/2": 1, "a/3": 1, "b/1": 5}, 12, ["a/1", "b/1"]),
    "below one path before the largest": ({"a/1": 8, "b/1": 6, "b/2": 6}, 12, ["b/1", "b/2"]),
    "of two such paths the smaller": (
        {"a/1": 7, "a/2": 7, "b/1": 6, "b/2": 6}, 12, ["b/1", "b/2"],
    ),
    "near ones as far as they do": (
        {"a/1": 8, "a/2": 3, "b/1": 5, "c/1": 5}, 15, ["a/1", "a/2", "b/1"],
    ),
    "the longer the path, the nearer": (
        {"a/x/1": 8, "a/x/2": 2, "a/y/1": 4, "b/x/1": 6, "b/x/2": 2}, 14, ["a/x/1", "b/x/1"],
    ),
    "nodes without a group are near nothing": ({"": 5, "a/1": 8, "a/2": 3}, 10, ["a/1", "a/2"]),
    "a name that another begins with": ({"a": 4, "ab": 3, "a/1": 3}, 7, ["a", "a/1"]),
}  # fmt: skip


@pytest.mark.parametrize("name", STORIES)
def test_groups_are_taken(name: str) -> None:
    sizes, tasks, chosen = STORIES[name]
    assert nearest(sizes, tasks) == chosen

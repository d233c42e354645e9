"""The search over small worlds where classes, homes and prices decide, and over mixed pools."""

from __future__ import annotations

import pytest

from .checks import Broken
from .class_mutants import BY_CLASS
from .draw import CLASSES, MIXED, draw
from .explore import Search
from .mutants import nothing_is_rehearsed

# From which world on, and how many states: the long search goes on where the short one does not.
SEARCHES = [
    pytest.param(100_000, 200, id="short"),
    pytest.param(100_100, 800, id="long", marks=pytest.mark.slow),
]

# Worlds in which something was wrong once. Each stays a regression test.
FOUND = {
    5_000_000_032: "the first idle node by name was lent, although it was out of service",
    5_000_000_149: "what was promised for a claim was kept when the node was given back",
    6_000_000_739: "where shares are fair non-preemptible work believed in rights it did not get",
    6_000_000_894: "what was withheld was taken from what a limit left, and not from what is free",
    5_000_080_039: "a node that its claim had emptied counted as lent, beyond what may be",
    5_000_000_036: "the first idle node by name was lent, although another one had room",
    5_000_000_167: "victims left a node that a higher class of the same policy got",
}
# Those with so many states that the quick loop leaves them to the whole suite.
MANY_STATES = {6_000_000_739, 6_000_000_894, 5_000_000_036, 5_000_080_039}
BROKEN_ONCE = [
    pytest.param(seed, id=said, marks=pytest.mark.slow if seed in MANY_STATES else ())
    for seed, said in FOUND.items()
]


@pytest.mark.parametrize("first", [CLASSES, MIXED], ids=["classes", "mixed"])
@pytest.mark.parametrize(("seed", "most"), SEARCHES)
def test_no_world_loops_or_breaks_a_promise(first: int, seed: int, most: int) -> None:
    states = 0
    while states < most:
        states += Search(draw(first + seed), 250).run()
        seed += 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", BROKEN_ONCE)
def test_worlds_that_were_broken_once(seed: int) -> None:
    assert Search(draw(seed), 500).run() > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_CLASS)
def test_the_search_finds_a_planted_bug(name: str) -> None:
    mutant, where, said = BY_CLASS[name]
    world = draw(where) if isinstance(where, int) else where
    assert Search(world, 400).run() > 1
    with mutant(), nothing_is_rehearsed(), pytest.raises(Broken, match=said):
        Search(world, 400).run()

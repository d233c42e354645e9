"""The search over small worlds, short; `make worlds` runs the long one."""

from __future__ import annotations

import pytest

from .checks import Broken
from .draw import FAIR, FAIR_ON_NODES, FRAGMENTED, NODES, TREES, draw
from .explore import Search
from .fair_mutants import FAIRLY, groups_alone
from .mutants import (
    IN_PIECES,
    MUTANTS,
    ON_NODES,
    nothing_is_rehearsed,
    nothing_is_taken_back,
    two_orders,
)
from .scenes import SCENES

# How many states are searched, and from which world on. The long search goes on elsewhere, so that
# together they look at more than either.
SEARCHES = [
    pytest.param(100_000, 300, id="short"),
    pytest.param(100_100, 8_000, id="long", marks=pytest.mark.slow),
]
FAIR_SEARCHES = [
    pytest.param(100_000, 40, id="short"),
    pytest.param(100_100, 760, id="long", marks=pytest.mark.slow),
]

# Worlds in which something was wrong once. Each stays a regression test.
FOUND = {
    11: "a victim came back above a promise that could have died when the room came",
    253: "an earmark that died left capacity idle until the next change",
    279: "an earmark that died in one pool left its owner unserved in another",
    101163: "a waiter that lost what was on its way in one pool was not served in its other",
    1005732: "capacity was withheld for a head that was promised capacity elsewhere",
    1010975: "an owner that started in another pool left its promised capacity idle",
    1025: "victims freed more than was needed and nobody looked again",
    1721: "an owner that fitted at once did not start in the same pass",
    350: "victims came back, together and in their other pool, and owners started, above a promise",
    835: "a promise in one of two pools was cut by who came back to it",
    1022: "the same after somebody gave up",
    2595: "an owner that had room until an older victim came back took by amounts, in vain",
    2550: "a promise died for a victim that lacked something else",
    4129: "a promise was made that two victims, one of them older and its equal, needed together",
    6734: "a grant pushed a promise out of its share, below its victim, which stopped all the same",
    22526: "the same, and its victim knew that it must stop",
    41783: "a victim of a taking that came to nothing stopped for what others want",
    64852: "somebody was stopped for a waiter that had room until older ones come back",
    21020: "an older victim was not looked at, because only younger ones were promised its room",
    83187: "the room of a victim that comes back above a promise was granted to another one",
    83982: "a victim took in its other pool, whose holder came back above its promise",
    2000081395: "a victim that may not go on came back above a promise",
    2000082285: "the same, and the promise that it pushed out of its share was lost",
    2000041195: "a promise below another limit died and was made again without end",
    2000042238: "a victim that went on pushed a kept promise out of its share",
    2000064134: "a victim could not go on as the last of its share, and cut a promise later",
    2000020263: "a promise that died came back, because all that a pass tried came to nothing",
    7562: "a kept promise lost its place in the share and preemption went in a circle",
    2009000541: "non-preemptible work of a department did not count what its teams fill first",
    2000003046: "a victim of a department went on in the room that a team below was promised",
    2000003817: "a department's reserve was its teams', and its own work was told that it starts",
    3000000060: "a group of a fair share did not grow when the first behind it left",
    3000000095: "victims that differ in a key which the waiter does not miss counted as alike",
    4000000075: "a small waiter stopped a large one of its own policy, in a circle with another",
    2000001107: "somebody rose above a waiter by its victims' leaving, and the pass failed",
    2000002126: "work that holds nothing of what is reserved was taken by amounts, and took back",
    1000001296: "work that may not be stopped took the grant that kept its own policy's promise",
    1000002038: "the same with a node that drains",
    1000000827: "work that may not be stopped needed a victim and its own policy's promise, both",
    1000003011: "a promise that was kept gave way to an owner that came back and took by amounts",
    1000100111: "a promise whose node drained away was not made again on another node",
    7000000562: "victims left a node that who comes back with them got, above the waiter",
    7000000198: "a grant was undone for an owner by amounts, and a younger request got it",
    3000000925: "victims left a share that another policy got, which did not starve yet",
    3000010052: "a limit above kept a request from taking of another one of its own policy",
}

BROKEN_ONCE = [pytest.param(seed, id=said) for seed, said in FOUND.items()]

# Ways through large worlds on which something was wrong once.
STORIES = {
    "what was withheld for somebody stayed so when its grant was taken back": (
        4000000005,
        "drains pool0-1, arrives r0, arrives r1, time passes for everybody, time passes for "
        "everybody, time passes for everybody, comes back pool0-1, arrives r2, stops r0.1",
    ),
    "nodes that an owner was promised and did not sit on were left idle": (
        6000080051,
        "arrives r0, arrives r1, arrives r2, arrives r3, arrives r4, begins r1, time passes for "
        "everybody, is told r1, saves r1, time passes for everybody, time passes for everybody, "
        "gives up r3, stops r1",
    ),
    "who lost its promise to its own policy could not take with a like victim any more": (
        3000050014,
        "arrives r0, arrives r1, arrives r2, arrives r3, arrives r4, time passes for everybody",
    ),
}


@pytest.mark.parametrize(("seed", "most"), SEARCHES)
def test_no_world_loops_or_breaks_a_promise(seed: int, most: int) -> None:
    states = 0
    while states < most:
        states += Search(draw(seed), min(most, 2_000)).run()
        states += Search(draw(NODES + seed), min(most, 2_000)).run()
        states += Search(draw(TREES + seed), min(most, 2_000)).run()
        states += Search(draw(FRAGMENTED + seed), min(most, 300)).run()
        seed += 1


@pytest.mark.parametrize("first", [FAIR, FAIR_ON_NODES], ids=["counted", "on nodes"])
@pytest.mark.parametrize(("seed", "most"), FAIR_SEARCHES)
def test_no_world_that_shares_fairly_loops_or_breaks_a_promise(
    first: int, seed: int, most: int
) -> None:
    states = 0
    while states < most:
        states += Search(draw(first + seed), 250).run()
        seed += 1


@pytest.mark.parametrize("name", SCENES)
def test_no_scene_of_fair_shares_loops_or_breaks_a_promise(name: str) -> None:
    assert Search(SCENES[name], 1_000).run() > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", FAIRLY)
def test_the_search_finds_a_planted_bug_of_fair_shares(name: str) -> None:
    mutant, where = FAIRLY[name]
    world = draw(where) if isinstance(where, int) else SCENES[where]
    assert Search(world, 800).run() > 1
    with mutant(), nothing_is_rehearsed(), pytest.raises((Broken, AssertionError, KeyError)):
        Search(world, 800).run()


def test_the_circle_check_fires_on_the_literal_text_of_fair_shares() -> None:
    """Document 003 decides by the groups of a request alone; two requests then take turns (L1)."""
    with groups_alone(), nothing_is_rehearsed(), pytest.raises(Broken, match="circle"):
        Search(SCENES["turns"], 1_000).run(judge=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", BROKEN_ONCE)
def test_worlds_that_were_broken_once(seed: int) -> None:
    assert Search(draw(seed), 4_000).run() > 1


@pytest.mark.parametrize("name", STORIES)
def test_stories_that_were_broken_once(name: str) -> None:
    seed, story = STORIES[name]
    Search(draw(seed), 1).follow(story.split(", "))


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_the_search_finds_a_planted_bug(name: str) -> None:
    mutant, first = MUTANTS[name]
    with mutant(), nothing_is_rehearsed(), pytest.raises((Broken, AssertionError, KeyError)):
        for seed in range(first, first + 400):
            Search(draw(seed), 2_000).run()


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_NODES)
def test_the_search_finds_a_planted_bug_on_nodes(name: str) -> None:
    mutant, first = ON_NODES[name]
    with mutant(), nothing_is_rehearsed(), pytest.raises((Broken, AssertionError, KeyError)):
        for seed in range(NODES + first, NODES + first + 400):
            Search(draw(seed), 2_000).run()


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_PIECES)
def test_the_search_finds_a_planted_bug_where_reserves_are_in_pieces(name: str) -> None:
    mutant, seed = IN_PIECES[name]
    assert Search(draw(seed), 800).run() > 1
    with mutant(), nothing_is_rehearsed(), pytest.raises(Broken):
        Search(draw(seed), 800).run()


def test_the_circle_check_fires_on_literal_rules() -> None:
    """The documents' two rules, read literally, evict for ever in some worlds (L1): inside one
    pass, unless every decision of it stands.
    """
    with two_orders(), nothing_is_taken_back(), pytest.raises(Broken, match="circle"):
        for seed in range(25, 600):
            Search(draw(seed), 2_000).run(judge=False)


def test_the_check_of_a_pass_that_does_not_end_fires() -> None:
    with (
        two_orders(),
        nothing_is_rehearsed(),
        pytest.raises(Broken, match="does not come to an end"),
    ):
        Search(draw(25), 2_000).run(judge=False)

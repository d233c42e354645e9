"""The cheapest victims among many: what the search costs over putting them in order of price."""

from __future__ import annotations

import gc
from collections.abc import Callable
from random import Random
from time import process_time

from benchmarks.report import Figure, in_a_process
from cede.engine.rights.cover import Holding
from cede.engine.victims.candidates import Candidate, Gathering
from cede.engine.victims.cheapest import VictimSettings, cheapest
from cede.engine.victims.goals import Goal, Shortage

RUNNING = 10_000
TIMES = 60
SETTINGS = VictimSettings()
# What is missing: three victims are enough, or no three are, and every set is out.
MISSING = {"three victims": {"gpu": 20}, "no set": {"gpu": 40}}


def running(count: int = RUNNING, seed: int = 6) -> list[Candidate]:
    """Holders of four sizes, of ten policies and three classes, each with a price of its own."""
    dice = Random(seed)
    found = []
    for number in range(count):
        gpu = dice.choice((1, 2, 4, 8))
        amounts = {"gpu": gpu, "mcpu": gpu * 4_000, "memory_mb": gpu * 32_000, "step_run": 1}
        policy = f"policy{dice.randrange(10)}"
        holding = Holding(f"allocation{number}", policy, amounts, True, number)
        found.append(Candidate(holding, 5 + gpu * dice.random() * 100, dice.choice((2, 3, 5)), 5))
    return found


def price(candidate: Candidate) -> float:
    """Known beforehand on both sides: working it out takes longer than either."""
    return candidate.price


def goals(missing: dict[str, int]) -> list[Goal]:
    return [Shortage(dict(missing))]


def in_turn(calls: list[Callable[[], object]]) -> list[float]:
    """Seconds of each call: the fastest, free of neighbours; one after the other, so that all are
    disturbed alike.
    """
    took: list[list[float]] = [[] for _ in calls]
    gc.collect()
    gc.disable()
    for _ in range(TIMES):
        for call, seconds in zip(calls, took, strict=True):
            started = process_time()
            call()
            seconds.append(process_time() - started)
    gc.enable()
    return list(map(min, took))


def search() -> tuple[int, float, dict[str, float]]:
    candidates = running()
    gathering = Gathering(goals({"gpu": 20}), SETTINGS.max_victims, SETTINGS.groups_max)
    gathering.add_all(candidates)
    for name, missing in MISSING.items():
        choice = cheapest(candidates, goals(missing), SETTINGS)
        assert choice.exhaustive and (choice.best is None) == (name == "no set"), choice
    order, *searches = in_turn(
        [
            lambda: sorted(candidates, key=price),
            *(
                lambda missing=missing: cheapest(candidates, goals(missing), SETTINGS)
                for missing in MISSING.values()
            ),
        ]
    )
    return len(gathering.groups), order, dict(zip(MISSING, searches, strict=True))


def victims_are_found_cheaply() -> Figure:
    groups, order, searches = in_a_process(search)
    figures = ", ".join(f"{1e3 * took:.1f} ms for {name}" for name, took in searches.items())
    return Figure(
        f"victims among {RUNNING:,} in {groups} groups, over sorting them by price",
        max(searches.values()) / order,
        most=3,
        detail=f"{figures}, over {1e3 * order:.1f} ms",
    )


FIGURES = [victims_are_found_cheaply]

"""Short runs of the simulation, and the planted bugs that it finds.

`make sim` runs many more seeds.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation import bugs
from tests.simulation.run import simulate


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_broken(seed: int) -> None:
    outcome = simulate(seed, stormy=120)
    assert outcome.problems == []
    assert outcome.counts["launches"] and outcome.counts["faults"], outcome.counts


def test_a_seed_is_one_run_event_by_event() -> None:
    """In processes of their own: what a process did before, and where its objects lie in memory,
    changes nothing.
    """
    program = (
        "from tests.simulation.run import simulate; o = simulate(3, stormy=60); print(o.trace)"
    )
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    command = [sys.executable, "-W", "ignore", "-c", program]
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first.split()[-1] == second.split()[-1]


@pytest.mark.parametrize("bug", list(bugs.FOUND_BY), ids=lambda each: each.__name__)
def test_planted_bugs_are_found(bug: bugs.Bug) -> None:
    assert simulate(bugs.FOUND_BY[bug], bug=bug, to_the_end=False).problems

"""Short runs of the simulation, and the planted bugs that it finds; `make sim` runs many seeds.

Each in a process of its own with fixed hashes, because the same seed is then the same run.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation import bugs

pytestmark = pytest.mark.slow

TIMEOUT = 600


def in_its_own_process(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.simulation", *map(str, arguments)]
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_broken(seed: int) -> None:
    ran = in_its_own_process("--seed", seed, "--events", 1)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " launches" in ran.stdout and " faults" in ran.stdout


def test_a_seed_is_one_run_event_by_event() -> None:
    first, second = (in_its_own_process("--seed", 3, "--trace").stdout for _ in range(2))
    assert first and first == second


@pytest.mark.parametrize("bug", bugs.FOUND_BY, ids=lambda each: str(each))
def test_planted_bugs_are_found(bug: str) -> None:
    ran = in_its_own_process("--seed", bugs.FOUND_BY[bug], "--bug", bug)
    assert ran.returncode == 1 and "broken" in ran.stdout, ran.stdout + ran.stderr

"""Luck is named: a second try is for what depends on other programs, and the report shows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Each fails the first time it is called.
TESTS = """
import pytest

seen = []

def once(name):
    seen.append(name)
    assert seen.count(name) > 1, "late, this once"

@pytest.fixture(scope="session")
def shared():
    yield [len(seen)]
    seen.append("ended")

@pytest.mark.system
def test_of_what_is_shared(shared):
    shared.append("used")
    assert shared == [1, "used"], "not as it was at first"

@pytest.mark.system
def test_of_processes():
    once("processes")

@pytest.mark.system
def test_of_a_defect():
    raise AssertionError("always")

def test_of_this_process():
    once("alone")
"""


@pytest.mark.slow  # each starts a pytest of its own
@pytest.mark.parametrize(
    ("ci", "outcome"),
    [("true", "2 failed, 2 passed, 3 again"), ("", "4 failed")],
)
def test_a_second_try_is_had_in_ci_and_is_shown(tmp_path: Path, ci: str, outcome: str) -> None:
    (tmp_path / "test_luck.py").write_text(TESTS)
    arguments = [
        "-q",
        "-c",
        str(ROOT / "pyproject.toml"),
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, str(tmp_path / "test_luck.py")],
        cwd=ROOT,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert outcome in ran.stdout
    assert ("FAILED AT FIRST" in ran.stdout) == bool(ci)
    assert ("late, this once" in ran.stdout.partition("FAILED AT FIRST")[2]) == bool(ci)

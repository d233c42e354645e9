"""The documented scenarios come true on a real server, whichever face they are told through."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.levels.level import Level
from tests.levels.story import tell
from tests.scenario import Untrue

pytestmark = pytest.mark.system

FOLDER = Path(__file__).parents[1] / "engine" / "scenarios" / "documented"
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_story_comes_true(level: Level, path: Path) -> None:
    tell(level, path.read_text())


def test_all_documented_scenarios_are_here() -> None:
    assert {path.stem[0] for path in FILES} == set("abcdefghklmopqr")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("red submits r1 of 2 -> waiting r1", "r1 is running, not waiting"),
        ("red submits r1 of 9 -> rejected r1 (own_limit)", "reason of r1"),
        ("red submits r1 of 8\nblue submits b1 of 4", "r1 was running and is stopping"),
        ("red submits r1 of 2 -> running r1 in moon", "pool of r1 is gpus, not moon"),
    ],
)
def test_a_story_that_is_not_true_says_where(level: Level, line: str, said: str) -> None:
    begin = "pool gpus 8\nteam red reserved 4 limit 8 priority 1\n"
    begin += "team blue reserved 4 limit 8 priority 1\n"
    with pytest.raises(Untrue, match=said):
        tell(level, begin + line)

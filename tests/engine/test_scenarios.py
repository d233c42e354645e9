"""Every story in scenarios/ comes true; each file is one promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenario import Untrue, tell
from tests.stories import FILES, reasons_in


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_story_comes_true(path: Path) -> None:
    reasons_in(path)


def test_every_story_opens_with_its_promise() -> None:
    assert FILES
    for path in FILES:
        assert path.read_text().startswith("# "), path.name


@pytest.mark.parametrize(
    ("line", "said"),
    {
        "a wrong condition": ("red submits r1 of 2 -> waiting r1", "r1 is running, not waiting"),
        "an unnamed change": ("red submits r2 of 8\nr1 done", "r2 was waiting and is running"),
        "a refusal nobody expected": ("edit red limit 9", "was refused"),
        "no refusal": ("edit red limit 7 -> refused", "was not refused"),
        "another refusal": ("edit red limit 9 -> refused (in_use)", "is invalid, not in_use"),
        "another reason": ("red submits r2 of 8 -> waiting r2 (earmarked)", "reason of r2"),
        "an earmark": ("red submits r2 of 8 -> waiting r2, earmark r2", "owns no earmark"),
        "a pool": ("red submits r2 of 1 -> running r2 in moon", "pool of r2 is gpus"),
        "nobody": ("red submits r2 of 1 -> running r9", "there is no r9"),
    }.values(),
    ids=lambda each: each[:30],
)
def test_a_story_that_is_not_true_says_where(line: str, said: str) -> None:
    begin = "pool gpus 8\nteam red reserved 4 limit 8\n"
    begin += "" if "r1 of" in line else "red submits r1 of 2 -> running r1\n"
    with pytest.raises(Untrue, match=said) as caught:
        tell(begin + line)
    assert "what happened:" in str(caught.value)

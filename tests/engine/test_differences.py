"""Every difference from the documents is shown by a story that exists.

Scenarios that probed an earlier implementation of the documents, and what cede gives:

| scenario | there | here |
|---|---|---|
| A lower priority 4 in share, 4 borrowed; higher wants 4 | the borrowed one stops | same |
| B all in share, higher priority wants 4 | nobody stops | same; `rank_first` takes |
| C equal priority, wants 2 of its reserve | the newest borrowed stops | same |
| C2 the borrower has the higher priority | same as C | same |
| C3 wants 6, reserve 4 | nobody stops | same, `partial_headroom` |
| D 6 of 8 held, waiters 4 then 2 | both wait | **the 2 starts**, one pass counted |
| E in-reserve waiter against a higher borrower | the in-reserve one | same |
| F head at its own limit | skipped | same |
| G non-preemptible, keys the pool lacks | rejected | **allowed**, as documented |
| H shrunk below use | kept, nothing new | same |
| K three requests, two pools | primary, fallback, waiting | same |
| L further passes while victims stop | **more victims** | none |
| M wants 3, unused reserve 2 | a borrower stops | **waits**, `partial_headroom` |
| O, P non-preemptible and its reserve | as documented | same |
| Q holders 6 and 2, wants 6 | both stop | **the 6 only** |
| R two missing keys | two stop | **the one that has both** |
"""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "explanation" / "differences.md"
LETTERS = ["A", "B", "C", "C2", "C3", "D", "E", "F", "G", "H", "K", "L", "M", "O", "P", "Q", "R"]


def _rows() -> list[list[str]]:
    """The rows of every table of differences, without its head."""
    tables = [each for each in PAGE.read_text().split("\n\n") if each.startswith("| point ")]
    lines = [line for table in tables for line in table.splitlines()[2:]]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_difference_names_a_story_that_exists() -> None:
    assert len(_rows()) > 50
    for row in _rows():
        assert len(row) in (5, 6), row
        shown = re.findall(r"`([^`]+)`", row[-1])
        assert shown, row
        for story in shown:
            # Tests that are named instead of stories are looked up by tests/docs.
            path = HERE / "scenarios" / f"{story}.txt"
            assert story.startswith("tests/") or path.exists(), story


def test_every_probed_scenario_has_its_story_and_its_line_above() -> None:
    stems = [path.stem for path in (HERE / "scenarios" / "documented").glob("*.txt")]
    for letter in LETTERS:
        assert any(stem.startswith(f"{letter.lower()}_") for stem in stems), letter
        assert re.search(rf"\| (?:O, )?{letter}[ ,]", __doc__ or ""), letter

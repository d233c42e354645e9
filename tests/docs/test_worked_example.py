"""The worked example of docs/explanation/sharing.md, told to the real engine."""

from __future__ import annotations

from tests.scenario import tell

STORY = """# The table, line by line.
pool gpus 8
  team red   reserved 4 limit 8 priority 10
  team blue  reserved 4 limit 8 priority 10

red submits r1..r4 of 2 retries 1 -> running r1 r2 r3 r4, inside r1 r2, borrowed r3 r4
blue submits b1 of 4          -> stopping r3 r4, earmark b1
r4 stops                      -> waiting r4, waiting b1 (on_its_way), attempt r4 2
red submits r5 of 2           -> waiting r5 (earmarked)
r3 stops                      -> waiting r3, running b1
blue submits b2 of 2          -> waiting b2 (protected)
r1 done                       -> running r3, inside r2 r3
at rest
"""


def test_the_worked_example_comes_true() -> None:
    tell(STORY)

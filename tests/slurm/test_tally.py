"""What the long programmes would not forgive: each of their checkers fires."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.slurm import tally
from tests.slurm.outside import Watch


def noted(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "notes"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_an_attempt_that_began_twice_is_seen(tmp_path: Path) -> None:
    notes = noted(tmp_path, "begins 1 a.1 0 n1 0", "begins 2 a.1 0 n2 0", "begins 3 a.1 1 n2 1")
    assert tally.twice(notes) == ["a.1.0"]


def test_a_job_that_slurm_has_twice_is_seen() -> None:
    assert tally.jobs_twice(["cede-a.1", "cede-b.1", "cede-a.1"]) == ["cede-a.1"]


def test_a_device_with_two_tasks_is_seen(tmp_path: Path) -> None:
    both = ("begins 1 a.1 0 n1 0,1", "begins 2 b.1 0 n1 1", "ends 3 a.1 0 n1 0,1")
    assert tally.overlaps(noted(tmp_path, *both)) == ["n1 1: a.1.0 and b.1.0"]
    after = ("begins 1 a.1 0 n1 0", "ends 2 a.1 0 n1 0", "begins 3 b.1 0 n1 0")
    assert tally.overlaps(noted(tmp_path, *after)) == []
    elsewhere = ("begins 1 a.1 0 n1 0", "begins 2 b.1 0 n2 0")
    assert tally.overlaps(noted(tmp_path, *elsewhere)) == []


def test_a_node_that_is_idle_or_has_too_much_is_seen() -> None:
    anything: Any = None
    watch = Watch(anything)
    watch.note({"n1": 5}, set(), False, 0.0)
    assert watch.over == ["n1: 5"]
    watch.note({"n1": 3}, {"n1"}, True, 1.0)  # somebody is about to have it
    watch.note({"n1": 4}, set(), True, 2.0)
    watch.note({"n1": 3}, set(), False, 3.0)  # nobody wants it
    assert watch.longest == 0.0 and watch.times_idle == 0
    watch.note({"n1": 3}, set(), True, 4.0)
    watch.note({"n1": 3}, set(), True, 7.0)
    assert watch.longest == 3.0 and watch.times_idle == 1

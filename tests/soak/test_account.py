"""The account of a soak finds what it is there to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.account import Account
from tests.soak.load import Program

GOOD = """\
start 1 - 0 n1
step 1 0
step 1 1
asked 1 2
saved 1 000002-1 2
step 1 2
start 2 000002-1 2 n2
step 2 2
step 2 3
end 2 0
"""


def account(home: Path, *records: str, status: str = "released", overlap: str = "") -> Account:
    record, locks = home / "0000", home / "locks"
    for each in (record, locks):
        each.mkdir()
    for task, text in enumerate(records):
        (record / str(task)).write_text(text)
    if overlap:
        (locks / "overlap").write_text(overlap)
    return Account().of([Program(record, len(records), 4, "id", status)], locks)


def test_a_run_without_fault_is_counted(tmp_path: Path) -> None:
    found = account(tmp_path, GOOD)
    assert not found.problems
    assert (found.attempts, found.resumes, found.saves, found.moved) == (2, 1, 1, 1)
    assert (found.steps, found.repeated) == (5, 1)


def test_a_gang_resumes_from_the_newest_that_all_tasks_have(tmp_path: Path) -> None:
    """The first task alone saved something newer, which nobody can resume from."""
    more = GOOD.replace("step 1 2\n", "step 1 2\nsaved 1 000003-1 3\n")
    assert not account(tmp_path, more, GOOD).problems


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("start 2 000002-1 2 n2\n", "start 2 - 0 n2\n", "stale"),
        ("step 2 3\n", "", "steps never done"),
        ("step 2 2\n", "step 2 2\ngone 2 000002-1\n", "deleted under an attempt"),
        ("end 2 0\n", "end 2 3\n", "exit 3"),
    ],
)
def test_what_is_wrong_with_a_record_is_found(
    tmp_path: Path, old: str, new: str, kind: str
) -> None:
    assert old in GOOD
    assert account(tmp_path, GOOD.replace(old, new)).kinds() == {kind: 1}


def test_tasks_of_a_gang_that_start_at_different_steps_are_found(tmp_path: Path) -> None:
    newer = GOOD.replace("saved 1 000002-1 2\nstep 1 2\n", "step 1 2\nsaved 1 000003-1 3\n")
    newer = newer.replace("start 2 000002-1 2 n2\nstep 2 2\n", "start 2 000003-1 3 n2\n")
    assert account(tmp_path, GOOD, newer).kinds() == {"tasks apart": 1}


def test_failed_requests_and_two_holders_of_a_device_are_found(tmp_path: Path) -> None:
    found = account(tmp_path, GOOD, status="failed", overlap="n1.0 held by a wanted by b\n")
    assert found.kinds() == {"failed": 1, "two at once": 1}

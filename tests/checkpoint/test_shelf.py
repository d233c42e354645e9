"""Cleaning removes what is of no use any more, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from cede.checkpoint import manifest, shelf
from cede.checkpoint.shelf import Good


def make(directory: Path, *ids: str) -> None:
    for id in ids:
        (directory / id).mkdir(parents=True)
        (directory / id / "data").write_text(id)
        manifest.write(directory, id, 1)


def test_ids_are_sorted_as_people_count(tmp_path: Path) -> None:
    make(tmp_path, "9-1", "10-1", "000010-2", "100-1", "9-1a")
    assert shelf.newest(tmp_path) == ["100-1", "000010-2", "10-1", "9-1a", "9-1"]


def test_a_name_that_is_no_id_is_not_listed(tmp_path: Path) -> None:
    for name in (".manifest.json", "notes.manifest.json", "1.manifest.json.partial", "x", "7"):
        (tmp_path / name).touch()
    assert shelf.newest(tmp_path) == []


def test_an_id_is_given_once(tmp_path: Path) -> None:
    make(tmp_path, "000005-1")
    (tmp_path / "000005-1-2.manifest.json").touch()
    given = [shelf.next_id(tmp_path, 5, 1) for _ in range(2)]
    assert given == ["000005-1-3", "000005-1-4"]


def test_attempts_never_have_the_same_id_and_the_later_one_is_newer(tmp_path: Path) -> None:
    given = [shelf.next_id(tmp_path, 5, attempt) for attempt in (1, 1, 2, 10, 2)]
    assert given == ["000005-1", "000005-1-2", "000005-2", "000005-10", "000005-2-2"]
    make(tmp_path / "made", *given)
    in_order = ["000005-10", "000005-2-2", "000005-2", "000005-1-2", "000005-1"]
    assert shelf.newest(tmp_path / "made") == in_order


def test_older_ones_go_and_newer_ones_stay(tmp_path: Path) -> None:
    make(tmp_path, "1-1", "2-1", "3-1")
    (tmp_path / "1-2").mkdir()  # partial, or being written
    (tmp_path / "4-1").mkdir()
    (tmp_path / "notes").mkdir()
    assert shelf.clean(tmp_path, "2-1") == ["1-1"]
    assert shelf.newest(tmp_path) == ["3-1", "2-1"]
    assert shelf.clean(tmp_path, "2-1", idle=True) == ["1-2", "4-1"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
        "2-1",
        "3-1",
        "notes",
    ]


@pytest.mark.parametrize("keep", [None, ""])
def test_without_a_committed_one_only_partial_ones_go(keep: str | None, tmp_path: Path) -> None:
    make(tmp_path, "1-1")
    (tmp_path / "2-1").mkdir()
    (tmp_path / "2-1.manifest.json.partial").write_text("{")
    assert shelf.clean(tmp_path, keep) == []
    assert shelf.clean(tmp_path, keep, idle=True) == ["2-1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1-1", "1-1.manifest.json"]


def test_cleaning_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "data").touch()
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    (directory / "1-1").symlink_to("../precious")
    (directory / "2-1").mkdir()
    (directory / "2-1" / "inside").symlink_to("../../precious")
    make(directory, "3-1")
    assert shelf.clean(directory, "3-1", idle=True) == ["1-1", "2-1"]
    assert (tmp_path / "precious" / "data").exists()


def test_a_trap_that_cannot_be_removed_is_left(tmp_path: Path) -> None:
    make(tmp_path, "2-1")
    (tmp_path / "1-1").mkdir()
    (tmp_path / "1-1.manifest.json").mkdir()  # cannot be unlinked
    assert shelf.clean(tmp_path, "2-1") == []
    assert shelf.newest(tmp_path)[0] == "2-1"


def test_the_two_newest_that_hold_are_good_and_no_others_are_read(tmp_path: Path) -> None:
    make(tmp_path, "1-1", "2-1", "3-1", "10-1")
    (tmp_path / "1-1" / "data").unlink()
    assert shelf.good(tmp_path) == Good(("10-1", "3-1"))
    assert shelf.good(tmp_path, 1) == Good(("10-1",))
    assert shelf.good(tmp_path, 4).ids == ("10-1", "3-1", "2-1")


def test_what_does_not_hold_is_passed_over_with_the_name_of_its_file(tmp_path: Path) -> None:
    make(tmp_path, *(f"{number}-1" for number in range(1, 7)))
    (tmp_path / "6-1" / "data").unlink()
    (tmp_path / "5-1" / "data").write_text("5-X")
    (tmp_path / "4-1" / "data").write_text("longer")
    (tmp_path / "2-1.manifest.json").write_text("{")
    assert shelf.good(tmp_path) == Good(
        ("3-1", "1-1"),
        (
            "checkpoint 6-1: 'data': No such file or directory",
            "checkpoint 5-1: 'data': its SHA-256 is another",
            "checkpoint 4-1: 'data': 6 bytes, not 3",
            "checkpoint 2-1: 2-1.manifest.json: its manifest is not JSON as it should be",
        ),
    )


def test_partial_ones_are_neither_good_nor_a_problem(tmp_path: Path) -> None:
    (tmp_path / "1-1").mkdir()
    (tmp_path / "1-1.manifest.json.partial").write_text("{")
    assert shelf.good(tmp_path) == Good()


def test_a_folder_that_is_missing_has_nothing_and_one_that_is_none_is_a_problem(
    tmp_path: Path,
) -> None:
    assert shelf.good(tmp_path / "missing") == Good()
    (tmp_path / "file").touch()
    found = shelf.good(tmp_path / "file")
    assert found.ids == () and "Not a directory" in found.problems[0]


def test_many_broken_ones_are_not_all_named(tmp_path: Path) -> None:
    make(tmp_path, "1-1")
    for number in range(2, 50):
        (tmp_path / f"{number}-1.manifest.json").touch()
    found = shelf.good(tmp_path)
    assert found.ids == ("1-1",)
    assert len(found.problems) == shelf.PROBLEMS_MAX and "49-1" in found.problems[0]


@pytest.mark.parametrize("size", [0, 3_000_000])
def test_a_search_can_be_interrupted(size: int, tmp_path: Path) -> None:
    (tmp_path / "1-1").mkdir()
    (tmp_path / "1-1" / "data").write_bytes(bytes(size))
    manifest.write(tmp_path, "1-1", 1)
    calls = []

    def interrupt() -> None:
        calls.append(1)
        if len(calls) == (1 if size == 0 else 3):
            raise InterruptedError

    with pytest.raises(InterruptedError):
        shelf.good(tmp_path, interrupt=interrupt)

"""Cleaning removes what is of no use any more, and nothing else."""

from __future__ import annotations

from pathlib import Path

from cede.checkpoint import manifest, shelf


def make(directory: Path, *ids: str) -> None:
    for id in ids:
        (directory / id).mkdir()
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
    (tmp_path / "000005-2.manifest.json").touch()
    assert [shelf.next_id(tmp_path, 5) for _ in range(2)] == ["000005-3", "000005-4"]


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


def test_without_a_committed_one_only_partial_ones_go(tmp_path: Path) -> None:
    make(tmp_path, "1-1")
    (tmp_path / "2-1").mkdir()
    (tmp_path / "2-1.manifest.json.partial").write_text("{")
    assert shelf.clean(tmp_path, None) == []
    assert shelf.clean(tmp_path, None, idle=True) == ["2-1"]
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

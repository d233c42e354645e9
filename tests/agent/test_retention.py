"""Old checkpoints are asked about, a few at a time, and go only where the server says so."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cede.agent.retention import LOOK_EVERY, Retention
from cede.model import bounds

KEEP = 1000.0


def saved(home: Path, request: str, *, age: float, tasks: int = 1) -> Path:
    """A request whose first task saved itself so long ago, and the others long before."""
    folder = home / request
    for task in range(tasks):
        (folder / str(task) / "000001-1").mkdir(parents=True)
        at = time.time() - (age if task == 0 else age + 10 * KEEP)
        os.utime(folder / str(task), (at, at))
    os.utime(folder, (0, 0))
    return folder


def test_only_what_has_not_changed_for_long_is_asked_about(tmp_path: Path) -> None:
    saved(tmp_path, "old", age=KEEP + 60)
    saved(tmp_path, "young", age=KEEP - 60, tasks=2)
    (tmp_path / "a-file").touch()
    assert Retention(tmp_path, KEEP).old() == ["old"]
    assert Retention(tmp_path / "nothing-yet", KEEP).old() == []


def test_requests_that_live_on_do_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SAVED_ASKED_MAX", 2)
    for request in "abcde":
        saved(tmp_path, request, age=2 * KEEP)
    looks = Retention(tmp_path, KEEP)
    assert [looks.old() for _ in range(3)] == [["a", "b"], ["c", "d"], ["e", "a"]]


def test_what_has_ended_goes_and_nothing_else(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir()
    ended, lives = (saved(home, each, age=2 * KEEP, tasks=2) for each in ("ended", "lives"))
    (ended / "0" / "000001-1" / "link").symlink_to(elsewhere)
    (home / "trap").symlink_to(elsewhere)
    Retention(home, KEEP).remove(["ended", "trap", "../elsewhere", "gone-already"])
    assert not ended.exists() and lives.exists() and elsewhere.exists()


def test_it_looks_as_often_as_something_may_have_become_old() -> None:
    for keep, every in ((10 * LOOK_EVERY, LOOK_EVERY), (60.0, 60.0), (0.0, 1.0)):
        looks = Retention(Path("nowhere"), keep)
        assert looks.is_due(5) and not looks.is_due(5 + every / 2) and looks.is_due(5 + every)

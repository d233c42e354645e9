"""Which checkpoints a host judges; it never goes back to one that is of no use any more."""

from __future__ import annotations

from pathlib import Path

from cede.checkpoint import manifest
from cede.checkpoint.manifest import SUFFIX, Saved
from cede.talk.verifier import Verifier
from tests.checkpoint.hosting import wait_for
from tests.checkpoint.test_shelf import make


def heard(verifier: Verifier, before: frozenset[str] | None = None) -> list[tuple[str, bool]]:
    """What is found out of what lies there now: ids in order, and whether each holds."""
    verifier.look(None, before)
    wait_for(lambda: not verifier.is_busy, "the verdicts")
    return [(id, isinstance(verdict, Saved)) for id, verdict in verifier.verdicts()]


def test_an_older_one_that_was_there_with_a_newer_one_is_not_heard_of(tmp_path: Path) -> None:
    """The newer one may be committed by then, and the older one cleaned away."""
    verifier = Verifier(tmp_path)
    assert heard(verifier) == []
    make(tmp_path, "1-1", "2-1", "3-1")
    assert heard(verifier) == [("3-1", True)]
    make(tmp_path, "4-1")
    assert heard(verifier) == [("4-1", True)]


def test_where_the_newest_does_not_hold_the_next_one_is_judged(tmp_path: Path) -> None:
    make(tmp_path, "1-1", "2-1")
    (tmp_path / f"3-1{SUFFIX}").write_text("{}")
    assert heard(Verifier(tmp_path)) == [("3-1", False), ("2-1", True)]


def test_what_appears_later_is_judged_whatever_its_id(tmp_path: Path) -> None:
    """Whoever begins anew counts from the beginning again."""
    verifier = Verifier(tmp_path)
    make(tmp_path, "9-1")
    assert heard(verifier) == [("9-1", True)]
    make(tmp_path, "1-1")
    assert heard(verifier) == [("1-1", True)]


def test_what_came_after_the_hint_while_the_host_was_away_is_judged(tmp_path: Path) -> None:
    make(tmp_path, "1-1", "8-1", "9-1")
    assert heard(Verifier(tmp_path), frozenset({"8-1", "9-1"})) == [("9-1", True), ("1-1", True)]


def test_what_was_there_before_is_not_judged_unless_it_is_replaced(tmp_path: Path) -> None:
    make(tmp_path, "1-1", "2-1")
    verifier = Verifier(tmp_path)
    verifier.know(None)
    assert verifier.known == {"1-1", "2-1"}
    assert heard(verifier) == []
    make(tmp_path, "0-1")
    assert heard(verifier) == [("0-1", True)]
    manifest.write(tmp_path, "2-1", 2)
    assert heard(verifier) == [("2-1", True)]
    assert heard(verifier) == []


def test_what_is_known_to_be_older_is_not_judged_after_a_restart(tmp_path: Path) -> None:
    make(tmp_path, "1-1", "2-1", "3-2")
    verifier = Verifier(tmp_path)
    verifier.know({"1-1", "2-1"})
    assert heard(verifier) == [("3-2", True)]


def test_known_ones_that_come_back_with_their_folder_are_still_known(tmp_path: Path) -> None:
    folder, away = tmp_path / "folder", tmp_path / "away"
    make(folder, "1-1")
    folder.rename(away)
    verifier = Verifier(folder)
    verifier.know({"1-1"})
    assert heard(verifier) == []
    away.rename(folder)
    assert heard(verifier) == []
    manifest.write(folder, "1-1", 2)
    assert heard(verifier) == [("1-1", True)]

"""Which checkpoints a host judges; it never goes back to one that is of no use any more."""

from __future__ import annotations

from pathlib import Path

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

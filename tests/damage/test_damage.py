"""The short form of `make damage`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.damage.history import make
from tests.damage.trial import detected, missed, run

FILES = 60


def test_undamaged_files_are_served(tmp_path: Path) -> None:
    for history in make(tmp_path / "history"):
        assert detected(history.copy(tmp_path / "copy")) is None


@pytest.mark.slow
def test_damage_that_changes_an_answer_is_detected(tmp_path: Path) -> None:
    outcomes = run(tmp_path, FILES, seed=7)
    assert not missed(outcomes), missed(outcomes)
    assert outcomes["changed, refused"] > FILES // 3, outcomes

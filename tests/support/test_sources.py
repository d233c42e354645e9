"""A test that runs two versions really runs two, or says that it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sources import HERE, NoHistory, Source, of_commit


def test_a_tree_is_what_a_python_imports(tmp_path: Path) -> None:
    assert HERE.imported() == HERE.folder
    (tmp_path / "cede").mkdir()
    (tmp_path / "cede" / "__init__.py").touch()
    assert Source(tmp_path).imported() == tmp_path


def test_a_commit_that_is_not_in_this_copy_is_named(tmp_path: Path) -> None:
    # This copy may itself be one without history.
    with pytest.raises(NoHistory, match=r"0000000|not a git repository|no git"):
        of_commit("0000000", tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_copy_without_history_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    with pytest.raises(NoHistory, match=r"not a git repository|no git"):
        of_commit("HEAD", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoHistory, match="no git"):
        of_commit("HEAD", tmp_path)

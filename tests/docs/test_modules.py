"""The page of modules lists every module of the package, once, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.modules import modules_below, wrong_in

ROOT = Path(__file__).parents[2]
SOUND = "- `__init__.py`: the root\n- `engine/`: decides\n- `engine/ledger/account.py`: fits\n"
MODULES = {"__init__.py", "engine/", "engine/ledger/account.py"}


def test_every_module_is_listed_with_one_line() -> None:
    page = (ROOT / "docs" / "design" / "modules.md").read_text()
    wrong = wrong_in(page, modules_below(ROOT / "src" / "cede"))
    assert not wrong, "docs/design/modules.md:\n" + "\n".join(wrong)


WRONG = {
    "engine/ledger/account.py is not listed": SOUND.replace(
        "- `engine/ledger/account.py`: fits\n", ""
    ),
    "engine/ is not listed": SOUND.replace("- `engine/`: decides\n", ""),
    "engine/old.py is listed and is not there": SOUND + "- `engine/old.py`: was moved\n",
    "engine/ledger/account.py is listed 2 times": SOUND + "- `engine/ledger/account.py`: fits\n",
    "engine/ledger/account.py has no words": SOUND.replace(" fits", " "),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_wrong_is_said(said: str) -> None:
    assert wrong_in(WRONG[said], MODULES) == [said]


def test_a_sound_page_passes() -> None:
    assert wrong_in(SOUND, MODULES) == []


def test_modules_are_found_in_every_folder(tmp_path: Path) -> None:
    for name in (
        "__init__.py",
        "engine/__init__.py",
        "engine/ledger/account.py",
        "engine/notes.txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert modules_below(tmp_path) == MODULES

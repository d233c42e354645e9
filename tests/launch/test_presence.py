"""The sign that a server has its database."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cede.launch.presence import Presence, is_shown, name_of

HOLD = """
import sys
from cede.launch.presence import Presence
presence = Presence(sys.argv[1])
assert presence.show()
print("shown", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def name(tmp_path: Path) -> str:
    return name_of(tmp_path / "cede.db")


def test_it_is_there_from_show_to_hide(name: str) -> None:
    presence = Presence(name)
    assert not is_shown(name)
    assert presence.show() and is_shown(name)
    presence.hide()
    assert not is_shown(name)


def test_it_has_one_holder(name: str) -> None:
    first, second = Presence(name), Presence(name)
    assert first.show() and not second.show(patience=0)
    second.hide()
    assert is_shown(name)
    first.hide()
    assert second.show(patience=0)
    second.hide()


def test_a_frozen_holder_keeps_it_and_a_killed_one_does_not(name: str) -> None:
    command = [sys.executable, "-c", HOLD, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"shown\n"
        holder.send_signal(signal.SIGSTOP)
        while_frozen = is_shown(name)
        holder.kill()
        holder.wait()
        assert (while_frozen, is_shown(name)) == (True, False)


def test_a_database_has_one_name_however_its_path_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "other").mkdir()
    name = name_of(tmp_path / "cede.db")
    assert name_of(tmp_path / "link" / "cede.db") == name
    assert name_of(tmp_path / "other" / "cede.db") != name
    assert name_of(tmp_path / "more.db") != name

"""K9: a program that dies in a save or in a cleaning, at any point, costs nothing that was good."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cede.checkpoint import shelf
from cede.talk.heard import Saved, SaveFailed
from tests.checkpoint.hosting import PATIENCE, PROGRAMS, Host, wait_for

pytestmark = pytest.mark.system


def save_or_clean(what: str) -> subprocess.CompletedProcess[str]:
    # In memory where there is such a place: hundreds of saves, each with its fsyncs.
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        return subprocess.run(
            [sys.executable, PROGRAMS / "killed.py", what, Path(folder) / "checkpoints"],
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE,
        )


@pytest.mark.parametrize("what", ["save", "clean"])
def test_killed_at_every_system_call(what: str) -> None:
    done = save_or_clean(what)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


def test_a_cleaning_in_the_wrong_order_would_be_found() -> None:
    assert "1-1 has a manifest and is none" in save_or_clean("careless").stderr


def test_killed_in_the_middle_of_a_save_that_was_asked_for(host: Host) -> None:
    host.run_program("loop.py", "obey")
    host.conversation.hint(1, 30)
    good = host.listen(Saved).saved
    host.next_attempt()
    host.run_program("loop.py", "slow", resume=good.path)
    host.conversation.hint(1, 30)
    wait_for(lambda: len([p for p in host.checkpoints.iterdir() if (p / "number").exists()]) == 2)
    host.kill()
    host.heard.clear()
    host.listen_for(0.2)
    assert not [each for each in host.heard if isinstance(each, Saved | SaveFailed)]
    assert shelf.good(host.checkpoints) == shelf.Good((good.id,))
    host.next_attempt()
    host.run_program("loop.py", "obey", resume=good.path)
    assert f"ready at {good.step}\n" in host.said()

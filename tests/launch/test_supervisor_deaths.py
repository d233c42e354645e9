"""A supervisor that is killed at any point leaves nothing behind that a sweep does not find (K6,
K10, K11).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cede.launch import crash, places
from cede.launch.contain import group_names
from cede.launch.launcher import Kept, State, launch, sweep
from cede.launch.probe import KINDS, Containment
from cede.launch.starting import LaunchFailed
from cede.model.errors import Conflict
from tests.launch.conftest import Make
from tests.launch.support import Attempt, survivors, until

pytestmark = pytest.mark.system

# At these the work's end is known, whatever happens to the supervisor.
STATUS_KNOWN = ("exit_before", "exit_written", "exit_after")
# At these the work has not begun, so it may be launched again.
NEVER_RAN = ("group_before", "group_after", "started_before")
KILLED = ("kill_before", "kill_after")
# Every point with the best means; with the others those where what they find differs.
DEATHS = [
    *((KINDS[0], point) for point in crash.POINTS),
    *((kind, point) for kind in KINDS[1:] for point in ("group_after", "started_after", *KILLED)),
]


def die_at(point: str, attempt: Attempt, patch: pytest.MonkeyPatch) -> None:
    """Launch a supervisor that dies at the point."""
    patch.setenv(crash.VARIABLE, point)
    launch(attempt.directory)
    patch.delenv(crash.VARIABLE)
    if point in KILLED:
        with Kept.adopt(attempt.directory) as kept:
            until(lambda: kept.status().state is not State.STARTING)
            kept.kill()
    attempt.supervisor_gone()


@pytest.mark.parametrize(("each_means", "point"), DEATHS, indirect=["each_means"])
def test_after_a_death_at(
    point: str, each_means: Containment, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "setsid sleep 1000 & exit 7" if point in STATUS_KNOWN else "setsid sleep 1000 & wait"
    attempt = make("sh", "-c", script, containment=each_means)
    die_at(point, attempt, monkeypatch)
    first = sweep(attempt.directory)
    attempt.assert_nothing_survives()
    assert group_names(each_means.means) == []
    if point in STATUS_KNOWN:
        assert (first["cause"], first["code"]) == ("exited", 7)
    elif point == "kill_after":
        # Whether it was collected between the kill and the death is a matter of luck.
        assert first["cause"] in ("keeper_lost", "killed")
    else:
        assert first["cause"] == "keeper_lost"
    assert sweep(attempt.directory) == first
    assert attempt.status().exit == first
    assert [each.name for each in attempt.directory.glob("exit*")] == ["exit.json"] or (
        point == "exit_written"
    )


@pytest.mark.parametrize("point", NEVER_RAN)
def test_work_that_never_ran_is_launched_again(
    point: str, make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    attempt = make("sh", "-c", f"echo once >> {ran}")
    die_at(point, attempt, monkeypatch)
    assert attempt.status().state is State.UNSTARTED
    assert not ran.exists()
    launch(attempt.directory)
    assert attempt.ended()["code"] == 0
    assert ran.read_text() == "once\n"


def test_work_that_ran_is_not_launched_again(make: Make, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    attempt = make("sh", "-c", f"echo once >> {ran}; sleep 1000")
    attempt.launch().close()
    until(lambda: ran.exists() and ran.read_text())
    launch(attempt.directory)  # while its supervisor lives
    os.kill(attempt.running()["keeper"], signal.SIGKILL)
    attempt.supervisor_gone()
    assert attempt.status().state is State.LOST
    launch(attempt.directory)  # when it is dead
    assert attempt.status().state is State.LOST
    sweep(attempt.directory)
    launch(attempt.directory)  # when it is over
    assert attempt.status().state is State.ENDED
    assert ran.read_text() == "once\n"


def test_two_launches_at_once_start_one(make: Make, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    attempt = make("sh", "-c", f"echo once >> {ran}; sleep 1000")
    code = "import sys; from pathlib import Path; from cede.launch.launcher import launch; "
    code += "launch(Path(sys.argv[1]))"
    both = [subprocess.Popen([sys.executable, "-c", code, attempt.directory]) for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]
    until(lambda: ran.exists() and ran.read_text())
    attempt.running()
    assert ran.read_text() == "once\n"


def test_a_supervisor_that_lives_is_not_swept_away(make: Make) -> None:
    attempt = make("sleep", "1000")
    attempt.launch().close()
    attempt.running()
    until(lambda: survivors(attempt.mark))  # it may still be getting ready
    with pytest.raises(Conflict, match="supervisor that lives"):
        sweep(attempt.directory)
    assert survivors(attempt.mark)


def test_a_supervisor_that_hangs_is_swept_away_with_its_work(make: Make) -> None:
    attempt = make("sleep", "1000")
    attempt.launch().close()
    supervisor = attempt.running()["keeper"]
    os.kill(supervisor, signal.SIGSTOP)
    assert sweep(attempt.directory, supervisor_too=True)["cause"] == "keeper_lost"
    attempt.assert_nothing_survives()


def test_a_sweep_that_died_halfway_is_repeated(make: Make) -> None:
    """The group is gone and the record half written: what a killed sweep leaves at worst."""
    attempt = make("sleep", "1000")
    attempt.launch().close()
    os.kill(attempt.running()["keeper"], signal.SIGKILL)
    attempt.supervisor_gone()
    (attempt.directory / f"{places.EXIT}.{os.getpid()}").write_text('{"cause": ')
    assert sweep(attempt.directory)["cause"] == "keeper_lost"
    assert json.loads((attempt.directory / places.EXIT).read_text())["cause"] == "keeper_lost"


def test_a_supervisor_that_cannot_begin_says_why(make: Make) -> None:
    attempt = make("true")
    (attempt.directory / places.WAKE).unlink()
    with pytest.raises(LaunchFailed, match="No such file or directory: 'wake'"):
        launch(attempt.directory)
    assert attempt.status().state is State.UNSTARTED

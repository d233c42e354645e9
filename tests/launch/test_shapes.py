"""No shape of work survives being killed, by whichever means this machine contains it.

What each means promises: *cgroup2* and *freezer* hold whatever their members start. *subreaper*
holds it as long as the supervisor lives; after that only what still has its environment is found.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from cede.launch.launcher import sweep
from cede.launch.probe import Containment
from tests.launch.programs import SHAPES
from tests.launch.support import cleaned, shape_of, survivors, until

pytestmark = pytest.mark.system


@pytest.mark.parametrize("shape", SHAPES)
def test_no_shape_survives_being_killed(
    shape: str, each_means: Containment, tmp_path: Path
) -> None:
    attempt, ready = shape_of(tmp_path, each_means, shape)
    with cleaned(attempt), attempt.launch() as kept:
        until(ready.exists, f"{shape} being ready")
        # One that is just becoming another program has neither arguments nor environment.
        until(lambda: survivors(attempt.mark), "the checker seeing what lives")
        assert attempt.in_group() or not each_means.at
        kept.kill()
        record = attempt.ended()
        attempt.assert_nothing_survives()
        assert record["cause"] == "killed"
        assert record["signal"] == signal.SIGKILL


@pytest.mark.parametrize("shape", ["ignores_signals", "stops_itself", "forks_when_told"])
def test_no_shape_survives_its_grace(shape: str, containment: Containment, tmp_path: Path) -> None:
    attempt, ready = shape_of(tmp_path, containment, shape)
    with cleaned(attempt), attempt.launch() as kept:
        until(ready.exists, f"{shape} being ready")
        kept.stop(grace=0.3)
        assert attempt.ended()["cause"] == "killed"
        attempt.assert_nothing_survives()


def test_a_daemon_that_keeps_the_log_open_ends_with_the_work(
    containment: Containment, tmp_path: Path
) -> None:
    attempt, ready = shape_of(tmp_path, containment, "daemon_holds_the_log")
    with cleaned(attempt), attempt.launch():
        until(ready.exists)
        os.kill(attempt.running()["pid"], signal.SIGINT)
        record = attempt.ended()
        assert (record["cause"], record["signal"]) == ("exited", signal.SIGINT)
        attempt.assert_nothing_survives()


@pytest.mark.parametrize("shape", ["double_fork", "reparents_and_ignores", "forks_when_told"])
def test_no_shape_survives_its_supervisors_death(
    shape: str, each_means: Containment, tmp_path: Path
) -> None:
    attempt, ready = shape_of(tmp_path, each_means, shape)
    with cleaned(attempt), attempt.launch():
        until(ready.exists)
        os.kill(attempt.running()["keeper"], signal.SIGKILL)
        attempt.supervisor_gone()
        assert sweep(attempt.directory)["cause"] == "keeper_lost"
        attempt.assert_nothing_survives()

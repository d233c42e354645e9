"""The template is killed at any moment, and no launch is lost or happens twice."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cede.launch import crash
from cede.launch.launcher import State
from cede.launch.starting import LaunchFailed, Template
from tests.launch.conftest import Make
from tests.launch.support import until

pytestmark = pytest.mark.system


def said_once(ran: Path) -> bool:
    return ran.exists() and ran.read_text() == "once\n"


@pytest.mark.parametrize("point", crash.LAUNCH_POINTS)
def test_killed_at(point: str, make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    attempt = make("sh", "-c", f"echo once >> {ran}; sleep 1000")
    with Template() as template:
        monkeypatch.setenv(crash.VARIABLE, point)
        template.warm()
        first = template.pid
        monkeypatch.delenv(crash.VARIABLE)
        if point in crash.FORK_POINTS:
            # Here the fork dies, and the template makes another, which dies as well.
            with pytest.raises(LaunchFailed, match="killed 5 times"):
                template.launch(attempt.directory)
            assert attempt.status().state is State.UNSTARTED
            assert first is not None
            os.kill(first, signal.SIGKILL)
        template.launch(attempt.directory)
        until(lambda: said_once(ran))
        template.launch(attempt.directory)  # it is started, so this does nothing
    supervisor = attempt.running()["keeper"]
    # It outlives the template that it came from, and belongs to nobody.
    assert os.getsid(supervisor) == supervisor
    assert ran.read_text() == "once\n"


def test_killed_while_many_launch(make: Make, tmp_path: Path) -> None:
    attempts = []
    for number in range(12):
        ran = tmp_path / f"ran{number}"
        attempts.append((make("sh", "-c", f"echo once >> {ran}"), ran))
    with Template() as template, ThreadPoolExecutor(4) as threads:
        template.warm()
        launches = [threads.submit(template.launch, each.directory) for each, _ in attempts]
        for launch in launches[::4]:
            launch.result()
            if (pid := template.pid) is not None:
                os.kill(pid, signal.SIGKILL)
        for launch in launches:
            launch.result()
        for attempt, ran in attempts:
            assert attempt.ended()["code"] == 0
            assert said_once(ran)


def test_it_ends_with_its_agent_and_its_supervisors_go_on(make: Make) -> None:
    attempt = make("sleep", "1000")
    with Template() as template:
        template.launch(attempt.directory)
        pid = template.pid
    assert not Path(f"/proc/{pid}").exists()
    assert attempt.status().state in (State.STARTING, State.RUNNING)
    attempt.running()


def test_a_supervisor_has_nothing_of_the_template(make: Make) -> None:
    attempt = make("sleep", "1000")
    with Template() as template:
        template.launch(attempt.directory)
        supervisor = attempt.running()["keeper"]
        # It collects its own children, although nobody collects those of the template.
        status = Path(f"/proc/{supervisor}/status").read_text()
        ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
        assert not ignored & 1 << signal.SIGCHLD - 1
        found = {each.name: str(each.readlink()) for each in _descriptors(supervisor)}
        assert found["0"] == "/dev/null"
        assert not [each for each in found.values() if each.startswith("socket:")]
    assert attempt.status().state is State.RUNNING


def _descriptors(process: int) -> list[Path]:
    return list(Path(f"/proc/{process}/fd").iterdir())

"""S15: what no journal entry explains is dead before the agent is ready; the agent's own code."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from cede.agent import attempts as agents_attempts
from cede.agent import runner as running
from cede.agent.attempts import Attempts
from cede.agent.link import Link
from cede.agent.runner import Runner
from cede.agent.settings import Settings
from cede.agent.values import Key, Kind
from cede.launch import launcher
from cede.launch.clock import boottime
from cede.launch.contain import Tree, group_names, open_group
from cede.launch.probe import Containment
from cede.model.errors import Conflict
from tests.launch.conftest import Make
from tests.launch.support import survivors, until

pytestmark = pytest.mark.system

ORPHAN = Key("orphan", 0)


def settings(data: Path) -> Settings:
    """Of an agent whose server nobody runs."""
    return Settings("http://127.0.0.1:9", data, data / "checkpoints", "alpha", {}, {})


@contextmanager
def attempts_of(data: Path, containment: Containment) -> Iterator[Attempts]:
    made = Attempts(settings(data), containment, boottime)
    yield made
    made.close()


def test_a_group_without_a_journal_entry_is_killed_and_removed(
    each_means: Containment, tmp_path: Path
) -> None:
    """K6."""
    with attempts_of(tmp_path, each_means) as attempts:
        if not each_means.at:
            assert group_names(each_means.means) == []
            assert attempts.sweep_unexplained([]) == agents_attempts.Swept()
            return
        group = open_group(each_means.means, ORPHAN.directory, list, lambda: True)
        group.make({"pids": 9} if "pids" in each_means.limits else {})
        sleeper = subprocess.Popen(["sleep", "1000"])
        group.enter(sleeper.pid)
        assert group_names(each_means.means) == [ORPHAN.directory]
        if each_means.kill == "freezer":
            # As a supervisor leaves it that dies in the middle of a kill.
            Path(group.home, "freezer.state").write_text("FROZEN")
        attempts.sweep_unexplained([ORPHAN])
        assert sleeper.poll() is None, "the journal explains it"
        assert attempts.sweep_unexplained([]) == agents_attempts.Swept()
        assert sleeper.wait() == -signal.SIGKILL
        assert group_names(each_means.means) == []
        assert attempts.sweep_unexplained([]) == agents_attempts.Swept()


def test_an_attempt_without_a_journal_entry_is_killed_with_its_supervisor_and_reported(
    each_means: Containment, make: Make, tmp_path: Path
) -> None:
    attempt = make(sys.executable, "-c", "import time; time.sleep(1000)", containment=each_means)
    attempt.launch().close()
    until(lambda: survivors(attempt.mark), "it runs")
    key = Key(attempt.mark, 0)
    with attempts_of(tmp_path, each_means) as attempts:
        assert attempts.sweep_unexplained([key]).reports == []
        assert survivors(attempt.mark), "the journal explains it"
        swept = attempts.sweep_unexplained([])
    assert survivors(attempt.mark) == []
    assert swept.survivors == {}
    [report] = swept.reports
    assert (report.key, report.attempt, report.kind) == (key, 1, Kind.ENDED)


class Stubborn(Tree):
    """A group whose member is in a system call that does not end."""

    def __init__(self) -> None:
        super().__init__({"kill": "subreaper", "at": "", "limits": {}}, "x", list, lambda: False)

    def members(self) -> list[int]:
        return [4711]

    def kill(self, timeout: float | None = None) -> bool:
        assert timeout is not None, "an agent must not wait for ever"
        return False


def test_what_does_not_die_is_named(
    containment: Containment, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = make("true")
    for module in (agents_attempts, launcher):
        monkeypatch.setattr(module, "open_group", lambda *_: Stubborn())
    name = ORPHAN.directory
    monkeypatch.setattr(agents_attempts, "group_names", lambda _: [name, attempt.directory.name])
    with attempts_of(tmp_path, containment) as attempts:
        swept = attempts.sweep_unexplained([])
        assert attempts.sweep_unexplained([Key(attempt.mark, 0), ORPHAN]).survivors == {}
    assert swept.reports == []
    assert swept.survivors == {
        name: "[4711] do not die",
        attempt.directory.name: f"{attempt.directory.name}: [4711] do not die",
    }


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every attempt to sweep a directory; killing fails as long as the test says so."""
    monkeypatch.setattr(running, "SWEEP_PAUSE", 0.0)
    monkeypatch.setattr(running, "SWEEP_PAUSE_MAX", 0.0)
    return []


def failing(monkeypatch: pytest.MonkeyPatch, sweeps: list[str], while_: Callable[[], bool]) -> None:
    real = launcher.sweep

    def sweep(directory: Path, *, supervisor_too: bool = False) -> dict[str, Any]:
        sweeps.append(directory.name)
        if while_():
            raise Conflict("survivors", "[4711] do not die")
        return real(directory, supervisor_too=supervisor_too)

    monkeypatch.setattr(launcher, "sweep", sweep)


def test_the_agent_kills_again_says_so_and_is_not_ready_before(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweeps: list[str]
) -> None:
    attempt = make("true")
    failing(monkeypatch, sweeps, lambda: len(sweeps) < 3)
    ready: list[int] = []

    def start(link: Link) -> None:
        ready.append(len(sweeps))
        link.stop()

    monkeypatch.setattr(Link, "start", start)
    with capture_logs() as logs:
        Runner(settings(tmp_path)).serve()
    assert ready == [3], "only once it is dead"
    said = [each for each in logs if each["event"].startswith("not ready")]
    assert [(each["log_level"], each["attempt"]) for each in said] == [
        ("error", attempt.directory.name)
    ] * 2
    assert {each["why"] for each in said} == {"[4711] do not die"}


def test_an_agent_that_is_not_ready_can_be_told_to_end(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweeps: list[str]
) -> None:
    make("true")
    runner = Runner(settings(tmp_path))

    def forever() -> bool:
        if len(sweeps) == 2:
            runner.end()
        return True

    failing(monkeypatch, sweeps, forever)
    monkeypatch.setattr(Link, "start", lambda _: pytest.fail("it was never ready"))
    runner.serve()
    assert len(sweeps) == 2


def test_a_full_disk_does_not_keep_an_agent_from_being_ready(
    containment: Containment, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work is dead by then; only the record of it has no room."""
    make("true")

    def full(*_: object, **__: object) -> None:
        raise OSError(agents_attempts.NO_SPACE[0], "No space left on device")

    monkeypatch.setattr(launcher.Place, "create", full)
    with attempts_of(tmp_path, containment) as attempts, capture_logs() as logs:
        assert attempts.sweep_unexplained([]) == agents_attempts.Swept()
    assert "cannot sweep" in {each["event"] for each in logs}

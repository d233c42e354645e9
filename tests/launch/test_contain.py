"""Containment is what was seen to work; limits limit; orphans are found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cede.launch import contain
from cede.launch import probe as probing
from cede.launch.contain import open_group
from cede.launch.probe import Containment, probe
from cede.launch.spec import Limits
from cede.model.errors import Invalid
from tests.launch.conftest import NAME, Make
from tests.launch.support import WAIT, until

pytestmark = pytest.mark.system


def test_a_machine_says_what_it_has_and_why_it_has_no_more(containment: Containment) -> None:
    lines = containment.describe()
    assert lines[0] == f"killed by {containment.kill}"
    told = {*containment.limits, *containment.why_not}
    assert {"pids", "memory_mb"} <= told, "every limit is there, or the reason why not"
    assert len(lines) == 1 + len(containment.limits) + len(containment.why_not)


def test_what_is_not_there_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories that look like hierarchies, and hold nobody."""
    places = {"cgroup2": tmp_path / "unified", "freezer": tmp_path / "freezer"}
    for each in places.values():
        each.mkdir()
    found = {name: str(path) for name, path in places.items()}
    monkeypatch.setattr(probing, "_hierarchies", lambda: found)
    weakest = probe("cede-lie")
    assert weakest.kill == "subreaper"
    assert set(weakest.why_not) == {"cgroup2", "freezer", "pids", "memory_mb"}
    assert weakest.limits == {}
    assert "no freezer: " in "\n".join(weakest.describe())


def test_a_limit_that_does_not_limit_is_not_believed(
    containment: Containment, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not containment.limits:
        pytest.skip(f"NOT TESTED: no limits here: {containment.why_not}")
    monkeypatch.setattr(contain, "_set_limit", lambda *_: None)
    unlimited = probe(NAME, containment.kill)
    assert unlimited.limits == {}
    assert "a process too many was started" in unlimited.why_not.get("pids", "")


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".", "-x", "x" * 200])
def test_a_root_is_one_component(name: str) -> None:
    with pytest.raises(Invalid, match="name"):
        probe(name)


def test_a_group_inside_the_group_dies_with_it(each_means: Containment) -> None:
    """What may make cgroups can hide in one of its own."""
    if not each_means.at:
        pytest.skip("a tree of processes has no groups inside")
    group = open_group(each_means.means, "nested.0", list, lambda: True)
    group.make({})
    inside = Path(group.home, "inside")
    inside.mkdir()
    sleeper = subprocess.Popen(["sleep", "1000"])
    (inside / "cgroup.procs").write_text(str(sleeper.pid))
    assert group.members() == [sleeper.pid]
    assert group.kill(timeout=WAIT)
    assert sleeper.wait() == -signal.SIGKILL
    group.remove()
    assert not Path(group.home).exists()


def test_killing_is_bounded_when_asked_to_be(containment: Containment) -> None:
    """A group that never gets empty: the checker fires."""
    means = {**containment.means, "kill": "subreaper", "at": ""}
    stubborn = open_group(means, "stubborn.0", list, lambda: False)  # type: ignore[arg-type]
    assert not stubborn.kill(timeout=0.05)


def test_groups_go_where_systemd_said_that_they_may(means_here: dict[str, Containment]) -> None:
    unified = means_here["cgroup2"]
    if not isinstance(unified, Containment):
        pytest.skip(f"NOT TESTED: no cgroup2 here: {unified}")
    service = Path(unified.at).parent / f"{NAME}-service"
    (service / "agent").mkdir(parents=True)
    try:
        os.setxattr(service, "user.delegate", b"1")
        code = (
            "import os, sys; open(sys.argv[1] + '/agent/cgroup.procs', 'w').write('0')\n"
            "from cede.launch.probe import probe; print(probe('groups', 'cgroup2').at)"
        )
        asked = [sys.executable, "-c", code, str(service)]
        at = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        assert at == f"{service}/groups"
    finally:
        for each in (service / "groups", service / "agent", service):
            each.rmdir()


def test_memory_over_the_limit_is_recorded(make: Make, containment: Containment) -> None:
    if "memory_mb" not in containment.limits:
        pytest.skip(f"NOT TESTED: memory is not limited: {containment.why_not['memory_mb']}")
    code = "x = b'x' * (256 << 20)"
    attempt = make(sys.executable, "-S", "-c", code, limits=Limits(memory_mb=64))
    attempt.launch().close()
    record = attempt.ended()
    assert (record["cause"], record["signal"], record["oom"]) == ("exited", signal.SIGKILL, True)
    within = make(sys.executable, "-S", "-c", "pass", limits=Limits(memory_mb=64))
    within.launch().close()
    record = within.ended()
    assert (record["code"], record["oom"]) == (0, False)


def test_processes_over_the_limit_are_not_started(make: Make, containment: Containment) -> None:
    if "pids" not in containment.limits:
        pytest.skip(f"NOT TESTED: pids are not limited: {containment.why_not['pids']}")
    code = (
        "import os, time\nn = 1\ntry:\n    while n < 99:\n        n += 1\n"
        "        if not os.fork(): time.sleep(99)\nexcept BlockingIOError: print(n - 1)"
    )
    attempt = make(sys.executable, "-S", "-c", code, limits=Limits(pids=20))
    attempt.launch().close()
    attempt.ended()
    assert attempt.output() == "20\n"
    attempt.assert_nothing_survives()


def test_the_work_is_in_its_groups_from_its_first_instruction(make: Make) -> None:
    attempt = make("cat", "/proc/self/cgroup")
    if not attempt.containment.at:
        pytest.skip("NOT TESTED: no cgroup here")
    attempt.launch().close()
    attempt.ended()
    assert attempt.spec.name in attempt.output()


def test_a_reused_pid_is_not_signalled() -> None:
    """A pid that was listed and is no member on the second look belongs to somebody else."""
    from cede.launch import processes

    stranger = subprocess.Popen(["sleep", "1000"])
    lists = iter([[stranger.pid], []])
    processes.send(signal.SIGKILL, lambda: next(lists))
    assert stranger.poll() is None
    lists = iter([[stranger.pid], [stranger.pid]])
    processes.send(signal.SIGKILL, lambda: next(lists))
    assert stranger.wait() == -signal.SIGKILL


def test_the_supervisor_is_small_and_belongs_to_nobody(make: Make) -> None:
    attempt = make("sleep", "1000")
    with attempt.launch() as kept:
        supervisor = attempt.running()["keeper"]
        assert os.getsid(supervisor) not in (os.getsid(0), 0)
        # A process with dataclasses or pathlib in it takes twice as long to start.
        loaded = subprocess.run(
            [sys.executable, "-c", "import cede.launch.supervisor, sys; print(*sys.modules)"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        assert not {"dataclasses", "inspect", "subprocess", "logging"} & set(loaded)
        kept.kill()
        until(lambda: attempt.status().exit)

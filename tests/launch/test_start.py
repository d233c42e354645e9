"""How the work finds itself: user, privileges, descriptors, environment; and what stops a start."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from cede.launch import places
from cede.launch.contain import Group
from cede.launch.launcher import State, prepare, sweep
from cede.launch.places import Place
from cede.launch.spec import Limits, User
from cede.launch.starting import LaunchFailed, Template
from cede.model import bounds
from tests.launch.conftest import Make
from tests.launch.support import until

pytestmark = pytest.mark.system

LOOK_AROUND = """
import json, os, signal, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
files = {int(each): os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")
         if os.path.exists(f"/proc/self/fd/{each}")}
print(json.dumps({
    "uids": os.getresuid(), "gids": os.getresgid(), "groups": os.getgroups(),
    "no_new_privileges": status["NoNewPrivs"].strip(), "capabilities": status["CapEff"].strip(),
    "ignored": status["SigIgn"].strip(), "blocked": status["SigBlk"].strip(),
    "files": files, "session": os.getsid(0) == os.getpid(), "group": os.getpgrp() == os.getpid(),
    "umask": status["Umask"].strip(), "directory": os.getcwd(),
    "environment": open("/proc/self/environ").read().split("\\0")[:-1],
}))
"""

# Signals 32 and 33 are the C library's own: nobody may set them, and make leaves them ignored.
THREADS = 0b11 << 31


def test_the_work_is_who_it_should_be_and_has_only_what_it_was_given(make: Make) -> None:
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root may start work as somebody else")
    os.environ["CEDE_TOKEN"] = "secret"
    try:
        user = User(65534, 65534, (65533,))
        attempt = make("/usr/bin/env", "python3", "-S", "-c", LOOK_AROUND, user=user, env=PLAIN)
        attempt.launch().close()
    finally:
        del os.environ["CEDE_TOKEN"]
    assert attempt.ended()["code"] == 0, attempt.output("stderr")
    seen = json.loads(attempt.output())
    assert seen["uids"] == seen["gids"] == [65534] * 3
    assert seen["groups"] == [65533]
    assert seen["no_new_privileges"] == "1"
    assert int(seen["capabilities"], 16) == 0
    # Python itself ignores SIGPIPE and SIGXFSZ, once it has started.
    pythons = (1 << signal.SIGPIPE - 1) | (1 << signal.SIGXFSZ - 1)
    assert int(seen["ignored"], 16) & ~pythons & ~THREADS == 0
    assert int(seen["blocked"], 16) == 0
    assert seen["files"].pop("0") == "/dev/null"
    assert {each: target.split(":")[0] for each, target in seen["files"].items()} == {
        "1": "pipe",
        "2": "pipe",
    }
    assert seen["session"] and seen["group"]
    assert (seen["umask"], seen["directory"]) == ("0022", "/")
    given = [f"{name}={value}" for name, value in attempt.spec.env.items()]
    assert sorted(seen["environment"]) == sorted(given)


PLAIN = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


def test_signals_are_as_a_program_expects_them(make: Make) -> None:
    attempt = make("grep", "^Sig[IB]", "/proc/self/status")
    attempt.launch().close()
    attempt.ended()
    shown = [int(line.split()[1], 16) & ~THREADS for line in attempt.output().splitlines()]
    assert shown == [0, 0]


def test_the_works_own_output_may_be_opened_again(make: Make) -> None:
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root may start work as somebody else")
    attempt = make("sh", "-c", "echo again > /dev/stdout", user=User(65534, 65534))
    attempt.launch().close()
    assert attempt.ended()["code"] == 0, attempt.output("stderr")
    assert attempt.output() == "again\n"


def is_removed(group: Group) -> bool:
    """Whether the group could be removed: not while a fork that gave up is still on its way out."""
    with suppress(OSError):
        for each in group.directories():
            with suppress(FileNotFoundError):
                Path(each).rmdir()
        return True
    return False


@pytest.mark.parametrize("processes", [1, 2])
def test_a_fork_that_fails_is_the_machines_fault(processes: int, make: Make) -> None:
    """There is room for the template, but not for a supervisor; or for that, but not for work."""
    attempt = make("true")
    if "pids" not in attempt.containment.limits:
        pytest.skip("NOT TESTED: nothing limits processes here")
    limits = {"pids": attempt.containment.limits["pids"]}
    crowded = Group({"kill": "", "at": "", "limits": limits}, "crowded")
    crowded.make({"pids": processes})
    with Template() as template:
        template.warm()
        assert template.pid is not None
        crowded.enter(template.pid)
        with pytest.raises(LaunchFailed, match="Resource temporarily unavailable"):
            template.launch(attempt.directory)
    assert attempt.status().state is State.UNSTARTED
    until(lambda: is_removed(crowded))
    attempt.launch().close()
    assert attempt.ended()["code"] == 0


USERS = {
    "a program that is not there": (["no-such-program"], "/", "No such file or directory"),
    "a program that is not executable": (["/etc/passwd"], "/", "Permission denied"),
    "a program that is a directory": (["/etc"], "/", "Permission denied"),
    "a directory that is not there": (["true"], "/no/such/place", "No such file or directory"),
    "a directory that is a file": (["true"], "/etc/passwd", "Not a directory"),
}


@pytest.mark.parametrize("case", USERS)
def test_the_users_fault_is_called_so(case: str, make: Make) -> None:
    argv, directory, text = USERS[case]
    attempt = make(*argv, directory=directory)
    attempt.launch().close()
    record = attempt.ended()
    assert (record["cause"], record["code"], record["signal"]) == ("start_failed", None, None)
    wrong = directory if directory != "/" else argv[0]
    where = (
        f" (looked up in PATH {attempt.spec.env['PATH']})" if argv[0] == "no-such-program" else ""
    )
    assert record["error"] == f"{text}: {wrong}{where}"


def test_a_program_is_told_with_the_path_it_was_looked_up_in(make: Make) -> None:
    long = ":".join(f"/no/such/folder/{number}" for number in range(4_000))
    attempt = make("p" * 100_000, env={"PATH": long})
    attempt.launch().close()
    error = attempt.ended()["error"]
    assert "(looked up in PATH /no/such/folder/0:/no/such/folder/1:" in error
    assert len(error) < bounds.DESCRIPTION_LENGTH_MAX


def test_a_script_without_an_interpreter_is_the_users_fault(make: Make, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_bytes(b"\x00nothing that runs")
    script.chmod(0o755)
    attempt = make(str(script))
    attempt.launch().close()
    assert attempt.ended()["cause"] == "start_failed"


def test_a_machine_that_cannot_limit_is_the_machines_fault(make: Make) -> None:
    attempt = make("true", limits=Limits(pids=10))
    means = {**attempt.containment.means, "limits": {}}
    attempt.contain_by(means)
    attempt.launch().close()
    record = attempt.ended()
    assert record["cause"] == "infrastructure"
    assert "cannot limit pids" in record["error"]


def test_a_group_that_cannot_be_made_is_the_machines_fault(make: Make) -> None:
    attempt = make("true")
    means = {"kill": "cgroup2", "at": "/proc/nowhere", "limits": {}}
    attempt.contain_by(means)
    attempt.launch().close()
    assert attempt.ended()["cause"] == "infrastructure"


def test_a_group_that_cannot_be_entered_is_the_machines_fault(make: Make, tmp_path: Path) -> None:
    """A plain directory can be made and not entered."""
    attempt = make("true")
    means = {"kill": "cgroup2", "at": str(tmp_path / "groups"), "limits": {}}
    attempt.contain_by(means)
    attempt.launch().close()
    assert attempt.ended()["cause"] == "infrastructure"


def test_a_launch_returns_when_the_work_has_started(make: Make) -> None:
    """Whoever launched it need not look for that."""
    attempt = make("sleep", "1000")
    with attempt.launch() as kept:
        assert kept.status().state is State.RUNNING


def test_what_an_agent_before_this_prepared_is_started_and_swept(make: Make) -> None:
    """It wrote means and wishes into files of their own, and no lock."""
    attempt = make("sleep", "1000")
    with Place(attempt.directory) as place:
        spec, means, wanted = place.read_spec()
        place.write(places.SPEC, spec)
        place.write(places.CONTAINMENT, means)
        place.write(places.CONTROL, wanted)
    (attempt.directory / places.LOCK).unlink()
    assert prepare(attempt.directory.parent, attempt.spec, attempt.containment)
    with attempt.launch() as kept:
        assert kept.status().state is State.RUNNING
        kept.kill()
    assert attempt.ended()["cause"] == "killed"
    attempt.supervisor_gone()
    sweep(attempt.directory)
    attempt.assert_nothing_survives()


def test_work_that_prints_nothing_makes_no_files_of_output(make: Make) -> None:
    attempt = make("true")
    attempt.launch().close()
    assert attempt.ended()["code"] == 0
    attempt.supervisor_gone()
    left = {each.name for each in attempt.directory.iterdir()}
    assert left == {"spec.json", "wake", "lock", "started.json", "ended.json", "exit.json"}

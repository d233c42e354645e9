"""Work dies when it must: with real processes, real signals and the process table as the judge."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cede.client import clock
from cede.client.child import GROUPS, Child, command
from cede.launch.contain import Means, group_names
from cede.launch.probe import killer, probe
from cede.model.errors import Invalid
from tests.client.serving import WAIT_SECONDS as WAIT
from tests.client.serving import eventually

pytestmark = pytest.mark.system

_numbers = itertools.count(1)


def sleeper() -> str:
    """A command that sleeps and is like no other on this machine, whoever tests beside us."""
    return f"sleep {1000 + next(_numbers)}.{os.getpid()}"


def start(*argv: str) -> Child:
    return Child(command(argv, os.environ))


def alive(sleeper: str) -> list[int]:
    """Processes that are exactly this `sleep N`, not those that have it in their arguments."""
    wanted = sleeper.replace(" ", "\0").encode() + b"\0"
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if each.read_bytes() == wanted:
                found.append(int(each.parent.name))
    return found


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], -9),
        (["no-such-program-anywhere"], 127),
        (["/etc/passwd"], 126),
    ],
)
def test_the_code_is_the_programs_own(argv: list[str], code: int) -> None:
    assert start(*argv).wait(WAIT) == code


def test_a_signal_reaches_the_group_and_the_default_is_to_die() -> None:
    sleep = sleeper()
    child = start("sh", "-c", f"{sleep} & wait")
    eventually(lambda: alive(sleep))
    child.signal(signal.SIGTERM)
    assert child.wait(WAIT) == -signal.SIGTERM
    assert not alive(sleep)


def test_kill_ends_what_ignores_sigterm(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    child = start("sh", "-c", f"trap '' TERM; touch {ready}; while :; do sleep 0.1; done")
    eventually(ready.exists)
    child.signal(signal.SIGTERM)
    assert child.wait(0.5) is None
    child.kill()
    assert child.wait(WAIT) == -signal.SIGKILL


BROKEN: Means = {"kill": "cgroup2", "at": "/proc/no-such-place", "limits": {}}


@pytest.mark.parametrize("kind", ["cgroup2", "freezer", "subreaper", "broken"])
def test_what_leaves_its_group_and_its_parent_dies_with_the_work(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A double fork into a new session escapes every group; the supervisor still adopts it."""
    try:
        means = BROKEN if kind == "broken" else probe(GROUPS, only=kind).means
    except Invalid as error:
        pytest.skip(str(error))
    monkeypatch.setattr("cede.client.child.killer", lambda name: means)
    ready, sleep = tmp_path / "ready", sleeper()
    script = (
        f"setsid sh -c 'trap \"\" TERM; touch {ready}; {sleep}' & "
        f"while [ ! -e {ready} ]; do sleep 0.01; done; exit 3"
    )
    child = start("sh", "-c", script)
    assert child.wait(WAIT) == 3
    assert not alive(sleep)
    assert child._name not in group_names(means)


def test_the_supervisor_kills_at_the_end_of_the_lease_without_us() -> None:
    ends = clock.now() + 0.5
    child = Child(command(["sleep", "1000"], os.environ), lease_until=ends)
    assert child.wait(WAIT) == -signal.SIGKILL
    assert clock.now() >= ends


def test_a_renewed_lease_lets_it_live_on(tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"while ! test -e {go}; do sleep 0.01; done; exit 5"
    child = Child(command(["sh", "-c", script], os.environ))
    first = clock.now() + 3
    child.lease(first)
    child.lease(first + 1000)
    eventually(lambda: clock.now() > first + 0.5)
    go.touch()
    assert child.wait(WAIT) == 5


def test_the_work_does_not_outlive_whoever_started_it() -> None:
    sleep = sleeper()
    parent = os.fork()
    if parent == 0:
        try:
            start("sh", "-c", f"setsid {sleep} & {sleep}")
            eventually(lambda: len(alive(sleep)) == 2)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:  # whatever goes wrong, the tests go on in one process
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(parent, 0)[1]) == -signal.SIGKILL
    eventually(lambda: not alive(sleep))


def test_the_work_does_not_outlive_its_supervisor() -> None:
    sleep = sleeper()
    child = start(*sleep.split())
    eventually(lambda: alive(sleep))
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait(WAIT) == -signal.SIGKILL
    eventually(lambda: not alive(sleep))


@pytest.mark.skipif(killer(GROUPS)["kill"] == "subreaper", reason="no cgroup may be made here")
def test_nothing_outlives_a_supervisor_that_is_killed() -> None:
    """What left its session has no parent that could tell; the cgroup still knows it."""
    sleep = sleeper()
    child = start("sh", "-c", f"setsid sh -c 'trap \"\" TERM; {sleep}' & {sleep}")
    eventually(lambda: len(alive(sleep)) == 2)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait(WAIT) == -signal.SIGKILL
    assert not alive(sleep)
    groups = killer(GROUPS)
    assert child._name not in group_names(groups)


def test_the_environment_is_what_was_given(tmp_path: Path) -> None:
    out = tmp_path / "out"
    child = Child(command(["sh", "-c", f"echo $CEDE_ATTEMPT > {out}"], {"CEDE_ATTEMPT": "4"}))
    assert child.wait(WAIT) == 0
    assert out.read_text() == "4\n"


def test_a_process_that_asks_by_grpc_can_go_on_forking() -> None:
    """Left to itself gRPC starts threads in whoever is forked, and they end it."""
    pytest.importorskip("grpc", reason="GRPCIO IS NOT INSTALLED: FORKING BESIDE IT WAS NOT TESTED")
    program = """
import os
from concurrent.futures import ThreadPoolExecutor
from cede.talk.grpc_call import grpc
from cede.client.child import Child, command
assert "GRPC_ENABLE_FORK_SUPPORT" not in os.environ
server = grpc.server(ThreadPoolExecutor(1))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
grpc.channel_ready_future(grpc.insecure_channel(f"127.0.0.1:{port}")).result(60)
print([Child(command(("sh", "-c", "exit 7"), os.environ)).wait(60) for _ in range(9)])
os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.stdout.strip() == str([7] * 9), done

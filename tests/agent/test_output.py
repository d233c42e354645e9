"""What work printed is read in the order in which it was written, also after a failure, a killed
supervisor and a restart of the server."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from cede.launch.logs import Kept
from cede.launch.order import RECORD
from cede.launch.places import STARTED, Place
from cede.model.ids import short_id
from tests.agent.cluster import Agent, Cluster
from tests.cli.terminal import Shown, typed
from tests.client.serving import BIN, WAIT_SECONDS, eventually

pytestmark = pytest.mark.system

OWN = ("--pool", "nodes", "--component", "red", "-t", "team", "--gpu", "1")


def until_there(path: Path) -> str:
    """Shell that waits for a file."""
    return f"while ! test -e {path}; do sleep 0.02; done"


def records(agent: Agent, request: str) -> int:
    """How many pieces of its output have their place in the order."""
    with Place(agent.attempt(request)) as place, Kept.open(place, "order") as kept:
        return kept.end // RECORD.size


def test_both_streams_are_shown_in_order_and_each_alone(shared: Cluster) -> None:
    script = "for i in 1 2 3; do echo out $i; echo err $i >&2; done; exit 4"
    request = shared.submit("sh", "-c", script)
    assert shared.ended(request)["status"] == "failed"

    def shown(*options: object) -> list[str]:
        done = shared.server.cede("logs", request, *options)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return str(done.stdout).splitlines()

    lines = [f"{word} {n}" for n in (1, 2, 3) for word in ("out", "err")]
    assert shown() == shown("--stdout", "--stderr") == lines
    assert shown("--stdout") == lines[::2]
    assert shown("--stderr") == lines[1::2]
    assert shown("--tail", 3) == lines[-3:]
    assert shown("--stderr", "--tail", 1) == ["err 3"]
    assert shown("--since", "1h") == shown("--since", "2020-01-01") == lines
    assert shown("--since", "2100-01-01") == []
    followed = shared.server.cede("logs", "-f", "--tail", 2, request)
    assert followed.stdout.splitlines() == lines[-2:]
    assert followed.stderr.startswith(f"cede: failed: {short_id(request)}")
    wrong = shared.server.cede("logs", request, "--since", "soon")
    assert wrong.returncode == 2 and "1h30m" in wrong.stderr


def test_only_what_was_printed_since_a_time_is_shown(shared: Cluster, tmp_path: Path) -> None:
    agent = shared.agents[0]
    script = f"echo before; {until_there(tmp_path / 'go')}; echo after >&2"
    request = shared.submit("sh", "-c", script)
    shared.until(lambda: agent.attempt(request).exists() and records(agent, request) == 1)
    since = time.time()
    (tmp_path / "go").touch()
    assert shared.ended(request)["status"] == "released"
    assert shared.printed(request, stream="both", since=since) == b"after\n"
    assert shared.printed(request, stream="stdout", since=since) == b""
    assert shared.printed(request, stream="both", age=3600) == b"before\nafter\n"


def test_long_output_is_shown_from_where_both_streams_are_kept(shared: Cluster) -> None:
    shared.agent("small", 1, "--allow-root-jobs", "--log-bytes", "4096")
    script = "for i in $(seq 2000); do echo out $i; echo err $i >&2; done"
    request = shared.submit("sh", "-c", script, node_labels={"host": "small"})
    assert shared.ended(request)["status"] == "released"
    whole = "".join(f"out {n}\nerr {n}\n" for n in range(1, 2001)).encode()
    printed = shared.printed(request, stream="both")
    assert whole.endswith(printed) and 1000 < len(printed) < 4 * 4096
    followed = shared.server.cede("logs", "-f", request)
    assert followed.stdout.encode() == printed, followed.stderr


def test_a_killed_supervisor_loses_no_output(shared: Cluster) -> None:
    agent = shared.agents[0]
    request = shared.submit("sh", "-c", "echo one; echo two >&2; echo three; sleep 600")
    home = agent.attempt(request)

    def printed() -> list[bytes]:
        return shared.printed(request, stream="both", attempt=1).splitlines()

    # A supervisor that was busy reads what came meanwhile of one stream as one piece.
    shared.until(lambda: home.exists() and records(agent, request) >= 2, about=request)
    shared.until(lambda: len(printed()) == 3, about=request)
    before = printed()
    assert sorted(before) == [b"one", b"three", b"two"]
    with Place(home) as place:
        os.kill(place.read(STARTED)["keeper"], signal.SIGKILL)
    shared.until(lambda: (home / "exit.json").exists(), about=request)
    assert printed() == before


def test_whoever_waits_sees_the_last_lines_of_what_failed(shared: Cluster) -> None:
    script = "seq 100; echo broken >&2; exit 3"
    waited = shared.server.cede("submit", *OWN, "--wait", "--", "sh", "-c", script)
    assert waited.returncode == 3
    request = waited.stdout.strip()
    again = shared.server.cede("wait", request)
    for said in (waited.stderr, again.stderr):
        before, _, lines = said.partition(f"(all of them: cede logs {short_id(request)})\n")
        assert "cede: failed: " in before
        assert lines.splitlines() == [*map(str, range(82, 101)), "broken"]
    assert shared.server.cede("wait", "-q", request).stderr == ""
    # Whoever followed has seen them.
    followed = shared.server.cede("submit", *OWN, "--follow", "--", "sh", "-c", script)
    assert followed.stdout.splitlines()[1:] == [*map(str, range(1, 101)), "broken"]
    assert "last lines" not in followed.stderr and "cede: failed: " in followed.stderr


def test_a_transcript_of_work_that_fails(shared: Cluster) -> None:
    def cede(*arguments: str) -> Shown:
        return typed(*arguments, env=shared.server.environment())

    script = "echo step 1; echo no such file >&2; exit 3"
    waited = cede("submit", *OWN, "--wait", "--name", "night", "--", "sh", "-c", script)
    assert waited.code == 3
    request = short_id(waited.lines[0])
    assert waited.lines[-2:] == ["step 1", "no such file"]
    assert f"(all of them: cede logs {request})" in waited.text
    followed = cede("logs", "-f", "night")
    assert (followed.code, followed.lines[:2]) == (0, ["step 1", "no such file"])
    assert followed.lines[2].startswith(f"cede: failed: {request}: ")
    assert cede("logs", request, "--stderr").line == "no such file"
    assert cede("logs", "last", "--tail", "1").line == "no such file"


def test_following_ends_with_the_reason_where_work_can_never_start(shared: Cluster) -> None:
    shared.agent("strict", 1, "--group", "none")  # root, and no map of accounts to ask for
    request = shared.submit("true", work={"user": "root"}, node_labels={"host": "strict"})
    followed = shared.server.cede("logs", "-f", request)
    assert followed.returncode == 0
    assert "--allow-root-jobs" in followed.stdout and "--allow-root-jobs" in followed.stderr
    assert f"cede: failed: {short_id(request)}" in followed.stderr


def test_following_what_is_cancelled_before_it_starts_ends(shared: Cluster, tmp_path: Path) -> None:
    on = {"node_labels": {"host": "n1"}}
    shared.submit("sleep", "600", gpus=2, **on)
    request = shared.submit("true", **on)
    errors = tmp_path / "errors"
    with errors.open("w") as stream:
        follower = shared.server.start_cede("logs", "-f", request, stderr=stream)
    shared.until(lambda: "cede: waiting: " in errors.read_text(), about=request)
    shared.client.requests.cancel(request)
    printed, _ = follower.communicate(timeout=WAIT_SECONDS)
    assert (follower.returncode, printed) == (0, "")
    assert f"cede: cancelled: {short_id(request)}" in errors.read_text()


@pytest.mark.parametrize("end", ["end", "kill"])
def test_following_survives_a_restart_of_the_server(
    shared: Cluster, tmp_path: Path, end: str
) -> None:
    steps = [f"echo out {n}; echo err {n} >&2; {until_there(tmp_path / str(n))}" for n in (1, 2)]
    request = shared.submit("sh", "-c", f"{'; '.join(steps)}; echo done")
    errors, printed = tmp_path / "errors", tmp_path / "printed"
    with errors.open("w") as err, printed.open("w") as out:
        following = subprocess.Popen(
            [str(BIN / "cede"), "logs", "-f", request],
            env=shared.server.environment(),
            stdout=out,
            stderr=err,
        )
    try:
        shared.until(lambda: printed.read_text() == "out 1\nerr 1\n", about=request)
        getattr(shared.server, end)()
        # Only now does it print more; the follower has given up one call before there is a server.
        (tmp_path / "1").touch()
        eventually(lambda: "still trying" in errors.read_text())
        shared.server.start()
        shared.until(lambda: "err 2\n" in printed.read_text(), about=request)
        (tmp_path / "2").touch()
        assert following.wait(WAIT_SECONDS) == 0
    finally:
        following.kill()
        following.wait()
    assert printed.read_text() == "out 1\nerr 1\nout 2\nerr 2\ndone\n"

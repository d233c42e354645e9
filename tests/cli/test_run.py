"""`cede run` with real processes: it waits, runs, stops when told to, comes back, and ends as its
command ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cede import Client
from tests.client.serving import WAIT_SECONDS, Serving, eventually, two_teams
from tests.client.test_supervisor import alive, sleeper

pytestmark = pytest.mark.system

# A lease that a busy machine keeps. It is waited out as well.
LEASE = 10.0
AS_RED = ("--component", "red", "-t", "team", "--lease", LEASE)
BLUE = {"component": "blue", "component_type": "team", "resources": {"gpu": 2}, "kind": "work"}


def said(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=2 * WAIT_SECONDS)
    return process.returncode, out, err


def status(client: Client, request_id: str) -> str:
    return str(client.requests.get(request_id)["status"])


def only_request(client: Client, component: str = "red") -> dict:
    found = eventually(lambda: list(client.requests.list(component=component)))
    return found[0]


def test_the_exit_code_is_the_commands_own(server: Serving, client: Client) -> None:
    two_teams(client)
    assert server.cede("run", *AS_RED, "--gpu", 1, "--", "sh", "-c", "exit 0").returncode == 0
    assert server.cede("run", *AS_RED, "--gpu", 1, "--", "sh", "-c", "exit 41").returncode == 41
    assert server.cede("run", *AS_RED, "--gpu", 1, "--", "no-such-program").returncode == 127
    killed = server.cede("run", *AS_RED, "--gpu", 1, "--", "sh", "-c", "kill -USR1 $$")
    assert killed.returncode == 128 + signal.SIGUSR1
    statuses = sorted(each["status"] for each in client.requests.list())
    assert statuses == ["failed", "failed", "failed", "released"]


def test_the_command_knows_its_request_and_not_the_token(server: Serving, client: Client) -> None:
    two_teams(client)
    done = server.cede("run", *AS_RED, "--gpu", 1, "--", "env")
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert seen["CEDE_REQUEST_ID"] == only_request(client)["id"]
    assert (seen["CEDE_ATTEMPT"], seen["CEDE_POOL"]) == ("1", "gpus")
    assert seen["CEDE_SERVER"] == server.url
    assert "CEDE_TOKEN" not in seen and server.token not in done.stdout + done.stderr


def test_it_reads_stdin_and_writes_stdout(server: Serving, client: Client) -> None:
    two_teams(client)
    done = server.cede("run", "-q", *AS_RED, "--", "cat", input="through")
    assert (done.stdout, done.stderr) == ("through", "")


def test_no_policy_is_refused(server: Serving, client: Client) -> None:
    two_teams(client)
    done = server.cede("run", "--component", "green", "-t", "team", "--gpu", 1, "--", "true")
    assert done.returncode == 4
    assert "green has no policy" in done.stderr and len(done.stderr.splitlines()) == 1


def test_what_no_pool_can_grant_is_refused(server: Serving, client: Client) -> None:
    two_teams(client)
    done = server.cede("run", *AS_RED, "--gpu", 10, "--", "true")
    assert done.returncode == 4
    assert "10 exceeds the capacity 2" in done.stderr


def test_preempted_for_its_owner_and_finished_after_that(
    server: Serving, client: Client, tmp_path: Path
) -> None:
    """The whole story: red borrows, blue wants its own, red stops, blue runs, red comes back."""
    two_teams(client)
    log = tmp_path / "log"
    script = (
        f'trap "echo stopped >> {log}; exit 9" TERM; echo "start $CEDE_ATTEMPT" >> {log}; '
        '[ "$CEDE_ATTEMPT" = 2 ] && exit 0; while :; do sleep 0.05; done'
    )
    run = server.start_cede("run", *AS_RED, "--gpu", 2, "--", "sh", "-c", script)
    eventually(lambda: log.exists() and log.read_text() == "start 1\n")
    blue = client.requests.create(BLUE)
    assert blue["status"] == "queued"
    eventually(lambda: status(client, blue["id"]) == "allocated")
    assert log.read_text() == "start 1\nstopped\n"
    red = only_request(client)
    assert (red["status"], red["attempt"], red["preempted_count"]) == ("queued", 2, 1)
    client.requests.release(blue["id"])
    code, _, err = said(run)
    assert code == 0, err
    assert log.read_text() == "start 1\nstopped\nstart 2\n"
    assert "which is inside its reserve" in err and "requeued" in err
    assert status(client, red["id"]) == "released"


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(
    server: Serving, client: Client
) -> None:
    two_teams(client, grace=1)
    sleep = sleeper()
    script = f"trap '' TERM; while :; do {sleep} & wait; done"
    run = server.start_cede(
        "run", *AS_RED, "--gpu", 2, "--preemptions", "count", "--", "sh", "-c", script
    )
    eventually(lambda: alive(sleep))
    blue = client.requests.create(BLUE)
    eventually(lambda: status(client, blue["id"]) == "allocated")
    assert not alive(sleep), "the units were given away while somebody used them"
    code, _, err = said(run)
    assert code == 8, err
    assert "killed" in err
    assert status(client, only_request(client)["id"]) == "preempted"


def test_cancelled_by_somebody_else(server: Serving, client: Client) -> None:
    two_teams(client)
    sleep = sleeper()
    run = server.start_cede("run", *AS_RED, "--gpu", 2, "--", *sleep.split())
    eventually(lambda: alive(sleep))
    client.requests.cancel(only_request(client)["id"])
    code, _, err = said(run)
    assert code == 9
    assert "cede: cancelling: " in err and "preempting" not in err
    assert not alive(sleep)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_and_the_request_ends(
    server: Serving, client: Client, number: signal.Signals
) -> None:
    two_teams(client)
    sleep = sleeper()
    run = server.start_cede("run", *AS_RED, "--gpu", 2, "--", *sleep.split())
    eventually(lambda: alive(sleep))
    run.send_signal(number)
    assert said(run)[0] == 128 + number
    assert not alive(sleep)
    assert only_request(client)["status"] == "cancelled"
    assert client.pools.get("gpus")["occupied"] == {"gpu": 0}


def test_a_signal_while_it_waits_cancels_the_request(
    server: Serving, client: Client, tmp_path: Path
) -> None:
    two_teams(client)
    client.requests.create({**BLUE, "lease": "none"})
    errors = tmp_path / "errors"
    with errors.open("w") as stream:
        run = server.start_cede("run", *AS_RED, "--gpu", 1, "--", "true", stderr=stream)
    eventually(lambda: "waiting:" in errors.read_text())
    red = only_request(client)
    assert red["status"] == "queued"
    run.send_signal(signal.SIGINT)
    assert said(run)[0] == 130
    err = errors.read_text()
    assert err.count("waiting:") == 1 and "1 gpu are needed and 0 of 2 are free" in err, err
    assert status(client, red["id"]) == "cancelled"


def test_when_cede_run_is_killed_its_command_dies(server: Serving, client: Client) -> None:
    two_teams(client)
    sleep = sleeper()
    script = f"setsid {sleep} & {sleep}"
    run = server.start_cede("run", *AS_RED, "--gpu", 2, "--", "sh", "-c", script)
    eventually(lambda: len(alive(sleep)) >= 2)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    eventually(lambda: not alive(sleep))
    eventually(lambda: only_request(client)["status"] == "failed")


def test_when_its_server_hangs_the_command_is_dead_before_the_lease_ends(
    own_server: Serving, client: Client
) -> None:
    two_teams(client)
    sleep = sleeper()
    run = own_server.start_cede("run", *AS_RED, "--gpu", 2, "--", *sleep.split())
    eventually(lambda: only_request(client)["allocation"]["state"] == "running" and alive(sleep))
    # It has its database still, and may be about to give the units away.
    own_server.process.send_signal(signal.SIGSTOP)
    stopped_at = seen_at = time.monotonic()
    while alive(sleep):
        # How late we look does not matter, only how late it was seen to live.
        assert seen_at - stopped_at < LEASE
        seen_at = time.monotonic()
        time.sleep(0.02)
    assert said(run)[0] == 6
    own_server.process.send_signal(signal.SIGCONT)


def test_a_short_restart_of_the_server_goes_unnoticed(
    own_server: Serving, client: Client, tmp_path: Path
) -> None:
    two_teams(client)
    go = tmp_path / "go"
    script = f"while ! test -e {go}; do sleep 0.05; done; exit 5"
    run = own_server.start_cede("run", *AS_RED[:-1], "90", "--gpu", 2, "--", "sh", "-c", script)
    eventually(lambda: only_request(client)["allocation"]["state"] == "running")
    own_server.kill()
    own_server.start()
    go.touch()
    assert said(run)[0] == 5
    assert only_request(client)["status"] == "failed"


def test_failures_are_retried_as_often_as_asked(
    server: Serving, client: Client, tmp_path: Path
) -> None:
    two_teams(client)
    log = tmp_path / "log"
    script = f"echo $CEDE_ATTEMPT >> {log}; exit 3"
    done = server.cede("run", *AS_RED, "--gpu", 1, "--retries", 2, "--", "sh", "-c", script)
    assert done.returncode == 3
    assert log.read_text().split() == ["1", "2", "3"]


def test_waiting_has_an_end_if_one_is_wanted(server: Serving, client: Client) -> None:
    two_teams(client)
    client.requests.create(BLUE)
    done = server.cede("run", *AS_RED, "--gpu", 1, "--wait-timeout", 1, "--", "true")
    assert done.returncode == 1
    assert "not granted within 1 seconds" in done.stderr
    assert only_request(client)["status"] == "cancelled"


def test_options_of_the_command_are_its_own(server: Serving, client: Client) -> None:
    two_teams(client)
    code = "import sys, json; print(json.dumps(sys.argv[1:]))"
    given = ["--gpu", "x y", "-o", "--", "$HOME", ""]
    done = server.cede("run", "-q", *AS_RED, "--", sys.executable, "-c", code, *given)
    assert json.loads(done.stdout) == given

"""Work that clients hold goes on while no server has the database, however long, and not while one
has it that they cannot reach."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cede import Client
from tests.cli.test_run import only_request, said
from tests.client.serving import WAIT_SECONDS, Serving, eventually, two_teams
from tests.client.test_supervisor import alive, sleeper

pytestmark = [pytest.mark.system, pytest.mark.slow]

LEASE = 8.0
# While a server that is back gets ready it cannot be reached, and prolongs nothing: on a busy
# machine that takes many seconds, with which these tests have nothing to do.
LONG_LEASE = 30.0
AS_RED = ("--component", "red", "-t", "team", "--lease", LEASE, "--gpu", 2)
BLUE = {"component": "blue", "component_type": "team", "resources": {"gpu": 2}, "kind": "work"}

STEP = """
import sys
from pathlib import Path
from time import sleep
from cede import ResourceSettings, pipeline, step

@step(settings={"resources": ResourceSettings(gpu_count=2)}, lease=float(sys.argv[2]))
def until_told(go):
    while not Path(go).exists():
        sleep(0.05)
    return "told"

@pipeline(dynamic=True, orchestrator="red")
def run():
    print(until_told(sys.argv[1]), flush=True)

run()
"""


def runs(client: Client) -> bool:
    (request,) = list(client.requests.list(component="red")) or [{}]
    return (request.get("allocation") or {}).get("state") == "running"


@pytest.fixture
def standby(own_server: Serving) -> Iterator[Callable[[], Serving]]:
    """A second server on the database of the first, on a port of its own."""
    started: list[Serving] = []

    def start() -> Serving:
        started.append(Serving(own_server.data))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def until_there(path: Path) -> str:
    """Shell that waits for a file."""
    return f"while ! test -e {path}; do sleep 0.05; done"


def holding(client: Client) -> int:
    found = client.requests.list(status="allocated")
    return sum((each.get("allocation") or {}).get("state") == "running" for each in found)


def test_work_outlives_an_absence_of_its_server_that_is_longer_than_its_lease(
    own_server: Serving, client: Client, tmp_path: Path
) -> None:
    """Everything that clients hold, at once, because a lease is waited out: commands that are told
    to end meanwhile, that end meanwhile, and that go on when the server is back; and a step.
    """
    two_teams(client, gpus=8)
    client.policies.attach("gpus", "red", priority=1, limit={"gpu": 2})
    go, back, program = tmp_path / "go", tmp_path / "back", tmp_path / "program.py"
    sleep, errors = sleeper(), [tmp_path / "stopped", tmp_path / "ended"]
    red = ("--component", "red", "-t", "team", "--gpu", 2, "--lease", LONG_LEASE, "--")
    with errors[0].open("w") as stream:
        stopped = own_server.start_cede("run", *red, *sleep.split(), stderr=stream)
    with errors[1].open("w") as stream:
        script = f"{until_there(go)}; exit 3"
        ended = own_server.start_cede("run", *red, "sh", "-c", script, stderr=stream)
    script = f"{until_there(back)}; echo attempt $CEDE_ATTEMPT"
    goes_on = own_server.start_cede("run", *red, "sh", "-c", script)
    program.write_text(STEP)
    command = [sys.executable, str(program), str(back), str(LONG_LEASE)]
    environment = own_server.environment()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as step:
        try:
            eventually(lambda: holding(client) == 4 and alive(sleep))
            own_server.kill()
            go.touch()
            eventually(lambda: "the work has ended; waiting" in errors[1].read_text())
            over = time.monotonic() + 1.25 * LONG_LEASE  # a slow machine makes it longer
            while time.monotonic() < over:
                assert alive(sleep)
                assert [each.poll() for each in (stopped, ended, goes_on, step)] == [None] * 4
                time.sleep(0.05)
            away = "cede: server away: the work goes on\n"
            eventually(lambda: away in errors[0].read_text())
            assert errors[0].read_text().count(away) == 1
            stopped.send_signal(signal.SIGTERM)
            assert said(stopped)[0] == 128 + signal.SIGTERM
            assert not alive(sleep)
            own_server.start()
            assert said(ended)[0] == 3
            back.touch()
            code, out, err = said(goes_on)
            assert (code, out) == (0, "attempt 1\n"), err
            assert step.communicate(timeout=WAIT_SECONDS)[0] == "told\n"
        finally:
            step.kill()
    found = [(each["status"], each["attempt"]) for each in client.requests.list(component="red")]
    assert found.count(("released", 1)) == 2, found
    failed = [each["reason"]["code"] for each in client.requests.list(status="failed")]
    assert "work_failed" in failed


def test_ctrl_c_ends_the_wait_to_report(
    own_server: Serving, client: Client, tmp_path: Path
) -> None:
    two_teams(client)
    go, errors = tmp_path / "go", tmp_path / "errors"
    script = until_there(go)
    with errors.open("w") as stream:
        run = own_server.start_cede("run", *AS_RED, "--", "sh", "-c", script, stderr=stream)
    eventually(lambda: runs(client))
    own_server.kill()
    go.touch()
    eventually(lambda: "the work has ended; waiting" in errors.read_text())
    run.send_signal(signal.SIGINT)
    assert said(run)[0] == 128 + signal.SIGINT


def test_a_server_on_another_port_prolongs_nothing(
    own_server: Serving, client: Client, standby: Callable[[], Serving]
) -> None:
    """It may give the units away, and a client that cannot reach it must not be there then."""
    two_teams(client)
    sleep = sleeper()
    run = own_server.start_cede("run", *AS_RED, "--", *sleep.split())
    eventually(lambda: runs(client) and alive(sleep))
    own_server.kill()
    other = standby()
    with other.client() as elsewhere:
        blue = elsewhere.requests.create({**BLUE, "lease": "none"})
        eventually(lambda: elsewhere.requests.get(blue["id"])["status"] == "allocated")
        assert not alive(sleep), "the units were given away while somebody used them"
    assert said(run)[0] == 6


def test_a_killed_cede_run_gives_its_units_back_after_its_lease(
    own_server: Serving, client: Client
) -> None:
    two_teams(client)
    sleep = sleeper()
    run = own_server.start_cede("run", *AS_RED, "--", *sleep.split())
    eventually(lambda: runs(client) and alive(sleep))
    own_server.kill()
    run.kill()
    run.communicate()
    eventually(lambda: not alive(sleep))
    own_server.start()
    eventually(lambda: only_request(client)["status"] == "failed")
    assert only_request(client)["reason"]["code"] == "lease_expired"
    assert client.pools.get("gpus")["occupied"] == {"gpu": 0}

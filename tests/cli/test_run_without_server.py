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
from tests.client.serving import Serving, eventually, two_teams
from tests.client.test_supervisor import alive, sleeper

pytestmark = [pytest.mark.system, pytest.mark.slow]

# It is waited out several times; a busy machine keeps it.
LEASE = 5.0
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


def longer_than_the_lease(lives: Callable[[], object]) -> None:
    """Two leases go by, and it lives: a slow machine makes this longer, and so harder."""
    until = time.monotonic() + 2 * LEASE
    while time.monotonic() < until:
        assert lives()
        time.sleep(0.05)


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


def test_a_command_outlives_its_server(own_server: Serving, client: Client, tmp_path: Path) -> None:
    two_teams(client)
    sleep, errors = sleeper(), tmp_path / "errors"
    with errors.open("w") as stream:
        run = own_server.start_cede("run", *AS_RED, "--", *sleep.split(), stderr=stream)
    eventually(lambda: runs(client) and alive(sleep))
    own_server.kill()
    longer_than_the_lease(lambda: alive(sleep) and run.poll() is None)
    assert errors.read_text().count("cede: server away: the work goes on\n") == 1
    run.send_signal(signal.SIGTERM)
    assert said(run)[0] == 128 + signal.SIGTERM
    assert not alive(sleep)


def test_a_command_goes_on_when_its_server_is_back(
    own_server: Serving, client: Client, tmp_path: Path
) -> None:
    two_teams(client)
    go = tmp_path / "go"
    script = f"while ! test -e {go}; do sleep 0.05; done; echo attempt $CEDE_ATTEMPT"
    run = own_server.start_cede("run", *AS_RED, "--", "sh", "-c", script)
    eventually(lambda: runs(client))
    own_server.kill()
    longer_than_the_lease(lambda: run.poll() is None)
    own_server.start()
    go.touch()
    code, out, err = said(run)
    assert (code, out) == (0, "attempt 1\n"), err
    assert only_request(client)["status"] == "released"


def ended_without_server(
    own_server: Serving, client: Client, tmp_path: Path, code: int
) -> subprocess.Popen[str]:
    """A `cede run` whose command ended while the server was away, and which waits to say so."""
    two_teams(client)
    go, errors = tmp_path / "go", tmp_path / "errors"
    script = f"while ! test -e {go}; do sleep 0.05; done; exit {code}"
    with errors.open("w") as stream:
        run = own_server.start_cede("run", *AS_RED, "--", "sh", "-c", script, stderr=stream)
    eventually(lambda: runs(client))
    own_server.kill()
    go.touch()
    eventually(lambda: "the work has ended; waiting" in errors.read_text())
    return run


def test_an_end_without_the_server_is_reported_when_it_is_back(
    own_server: Serving, client: Client, tmp_path: Path
) -> None:
    run = ended_without_server(own_server, client, tmp_path, 3)
    longer_than_the_lease(lambda: run.poll() is None)
    own_server.start()
    assert said(run)[0] == 3
    ended = only_request(client)
    assert (ended["status"], ended["reason"]["code"]) == ("failed", "work_failed")


def test_ctrl_c_ends_the_wait_to_report(
    own_server: Serving, client: Client, tmp_path: Path
) -> None:
    run = ended_without_server(own_server, client, tmp_path, 0)
    run.send_signal(signal.SIGINT)
    assert said(run)[0] == 128 + signal.SIGINT


def test_a_step_goes_on_when_its_server_is_back(
    own_server: Serving, client: Client, tmp_path: Path
) -> None:
    client.pools.create("gpus", {"gpu": 2})
    client.policies.attach("gpus", "red", priority=1, limit={"gpu": 2})
    program, go = tmp_path / "program.py", tmp_path / "go"
    program.write_text(STEP)
    command = [sys.executable, str(program), str(go), str(LEASE)]
    environment = own_server.environment()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as run:
        try:
            eventually(lambda: runs(client))
            own_server.kill()
            longer_than_the_lease(lambda: run.poll() is None)
            own_server.start()
            go.touch()
            out, _ = run.communicate()
        finally:
            run.kill()
    assert (run.returncode, out) == (0, "told\n")
    ended = only_request(client)
    assert (ended["status"], ended["attempt"]) == ("released", 1)


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

"""What the plug-in promises, on real ZenML servers: refusals, crashes, restarts, neighbours."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.serving import Serving
from tests.zenml.world import LEASE, START_SECONDS, ZenServer, pool, requests_of, statuses, until

# Two ZenML programs start in a test, and each may take minutes on a busy machine.
pytestmark = [pytest.mark.zenml, pytest.mark.system, pytest.mark.timeout(3600)]


def test_what_no_pool_can_grant_fails_at_once_and_says_why(cede: Serving, zen: ZenServer) -> None:
    pool(cede, gpus=2, red=2)
    run = zen.run("red", "too-much", resources={"gpu_count": 10}, retries=0)
    assert run.wait() != 0
    assert "gpu: 10 exceeds the capacity 2 of pool gpus" in run.output
    assert statuses(cede, "red") == ["rejected"]
    shown = zen.requests(status="rejected")[0]
    assert "gpu: 10 exceeds" in shown["status_reason"] and shown["step_name"] == "train"
    assert [each["status"] for each in zen.steps("too-much")] == ["failed"]
    assert "rejected" in zen.zenml("resource-request", "list")
    assert "step train of run too-much" in zen.log
    assert "is rejected: gpu: 10 exceeds the capacity 2 of pool gpus" in zen.log


def test_a_hopeless_rejection_is_not_retried(cede: Serving, zen: ZenServer) -> None:
    """Where ZenML asks its server whether to; it tries a step that is called all the same."""
    pool(cede, gpus=2, red=2)
    run = zen.run("red", "hopeless", resources={"gpu_count": 10}, retries=3, submitted=True)
    assert run.wait() != 0
    assert statuses(cede, "red") == ["rejected"]
    assert [each["status"] for each in zen.steps("hopeless")] == ["failed"]
    assert len(re.findall("step train of run hopeless, .* is rejected: gpu: 10", zen.log)) == 1


def test_a_class_is_refused_rather_than_ignored(cede: Serving, zen: ZenServer) -> None:
    pool(cede, gpus=2, red=2)
    run = zen.run("red", "classy", resources={"gpu_count": 1, "gpu_class": "h100"}, retries=0)
    assert run.wait() != 0
    assert "class h100: cede's pools have keys and no classes" in run.output
    assert statuses(cede, "red") == []


def test_without_a_policy_a_step_runs_untracked(cede: Serving, zen: ZenServer) -> None:
    run = zen.run("red", "untracked")
    run.succeeds()
    assert statuses(cede, "red") == []
    assert [each["status"] for each in zen.steps("untracked")] == ["completed"]


def test_settings_arrive_in_cedes_units(cede: Serving, zen: ZenServer) -> None:
    with cede.client() as client:
        client.pools.create("gpus", {"gpu": 2, "licence": 1})
        client.policies.attach("gpus", "red", priority=1, reserved={"gpu": 2, "licence": 1})
    asked = {"gpu_count": 1, "cpu_count": 1.5, "memory": "16GiB", "preemptible": False}
    named = {"licence": 1, "gpu": 2}
    zen.run("red", "units", resources={**asked, "pool_resources": named}).succeeds()
    made = requests_of(cede, "red")[0]
    assert made["resources"] == {
        "gpu": 1,
        "mcpu": 1500,
        "memory_mb": 17180,
        "licence": 1,
        "step_run": 1,
    }
    assert made["preemptible"] is False
    assert {made["labels"][name] for name in ("pipeline", "run", "step")} == {
        "sharing",
        "units",
        "train",
    }


def test_a_crashed_steps_units_come_back(cede: Serving, zen: ZenServer) -> None:
    """Its pipeline sees the process end."""
    pool(cede, gpus=2, red=2)
    run = zen.run("red", "crashing", seconds=[60.0, 1.0], retries=1)
    run.until("start")
    for pid in run.step_processes():
        os.kill(pid, signal.SIGKILL)
    until(lambda: statuses(cede, "red")[0] == "failed", START_SECONDS, "the killed step's units")
    assert requests_of(cede, "red")[0]["reason"]["code"] != "lease_expired"
    run.succeeds()
    assert statuses(cede, "red") == ["failed", "released"]


def test_when_everything_died_the_lease_brings_the_units_back(
    cede: Serving, zen: ZenServer
) -> None:
    pool(cede, gpus=2, red=0, blue=0)
    run = zen.run("red", "doomed", seconds=[600.0])
    run.until("start")
    waiter = zen.run("blue", "heir")
    until(lambda: statuses(cede, "blue"), START_SECONDS, "blue asks")
    run.kill()
    waiter.succeeds()
    dead = requests_of(cede, "red")[0]
    assert dead["status"] == "failed" and dead["reason"]["code"] == "lease_expired"
    assert zen.requests(status="expired")[0]["id"] == dead["id"]


def test_a_step_that_does_not_listen_is_killed_on_one_machine(
    cede: Serving, zen: ZenServer
) -> None:
    """A long call in C notices no request to stop; the flavor insists."""
    pool(cede, gpus=2, red=0, blue=2)
    deaf = zen.run("red", "deaf", seconds=[600.0, 0.5], deaf=True)
    deaf.until("start")
    zen.run("blue", "patient").succeeds()
    deaf.succeeds()
    assert statuses(cede, "red") == ["preempted", "released"]


def test_inline_steps_hold_without_heartbeats_and_are_not_preempted(
    cede: Serving, zen: ZenServer
) -> None:
    """On ZenML's `local`: no lease runs out and nobody stops it; deleting its run does."""
    pool(cede, gpus=2, inline=2, blue=0)
    run = zen.run("inline", "inline-run", seconds=[600.0])
    run.until("start")
    held = requests_of(cede, "inline")[0]
    assert (held["preemptible"], held["on_silence"]) == (False, "keep")
    time.sleep(LEASE + 5)
    held = requests_of(cede, "inline")[0]
    assert held["status"] == "allocated" and held["allocation"]["state"] == "granted"
    run.kill()
    found = zen.call("GET", "/runs", name="inline-run")["items"][0]["id"]
    zen.call("DELETE", f"/runs/{found}")
    until(lambda: statuses(cede, "inline") == ["released"], START_SECONDS, "its units")


def test_cede_restarted_in_the_middle_loses_nothing(cede: Serving, zen: ZenServer) -> None:
    """Red runs, blue waits; cede is killed, twice; red's step ends while it is away."""
    pool(cede, gpus=2, red=2, blue=0)
    red = zen.run("red", "through", seconds=[45.0])
    began = red.until("start")
    blue = zen.run("blue", "waiting")
    until(lambda: statuses(cede, "blue") == ["queued"], START_SECONDS, "blue waits")
    cede.kill()
    time.sleep(3)
    cede.start()
    assert (statuses(cede, "red"), statuses(cede, "blue")) == (["allocated"], ["queued"])
    time.sleep(max(0.0, began + 40 - time.time()))
    cede.kill()
    red.until("end")
    red.succeeds()
    cede.start()
    blue.succeeds()
    assert (statuses(cede, "red"), statuses(cede, "blue")) == (["released"], ["released"])


def test_a_run_that_is_stopped_gives_up_its_place_and_its_units(
    cede: Serving, zen: ZenServer
) -> None:
    """What waits hears of it when it asks again, what runs by its heartbeat."""
    pool(cede, gpus=2, red=0, blue=0)
    holder = zen.run("red", "stopped-late", seconds=[600.0])
    holder.until("start")
    waiter = zen.run("blue", "stopped-early")
    until(lambda: statuses(cede, "blue") == ["queued"], START_SECONDS, "blue asks")
    for each in (waiter, holder):
        run = zen.call("GET", "/runs", name=each.name)["items"][0]["id"]
        zen.call("POST", f"/runs/{run}/stop", graceful="true")
    assert waiter.wait() != 0
    assert "its pipeline run is being stopped" in waiter.output
    assert (statuses(cede, "blue"), waiter.noted("start")) == (["cancelled"], [])
    holder.until("stopped")
    until(lambda: statuses(cede, "red") == ["released"], START_SECONDS, "units of the stopped run")
    # They are found by who asked and for what, as in ZenML's other lists.
    names = {"user": "default", "pipeline_run_id": "stopped-early", "status": "contains:cancel"}
    assert [each["step_name"] for each in zen.requests(**names)] == ["train"]
    assert zen.requests(**{**names, "user": "nobody"}) == []


def test_two_replicas_and_release_as_often_as_one_likes(cede: Serving, zen: ZenServer) -> None:
    pool(cede, gpus=2, red=2)
    run = zen.run("red", "replicated", seconds=[600.0], retries=0)
    run.until("start")
    request = requests_of(cede, "red")[0]
    other = ZenServer(zen.folder, cede.url, cede.token)
    try:
        assert other.requests(status="allocated")[0]["id"] == request["id"]
        path = f"/resource_requests/{request['id']}"
        assert other.call("GET", path)["body"]["step_name"] == "train"
        for server in (other, zen, other):
            assert server.call("POST", f"{path}/release")["body"]["status"] == "released"
        assert other.status("GET", "/resource_requests/00000000-0000-4000-8000-000000000000") == 404
    finally:
        other.stop()
    # ZenML's next heartbeat learns that the units are gone, and the step is stopped.
    run.until("stopped")
    assert run.wait() != 0


def test_two_zenml_servers_share_one_cede(cede: Serving, zen: ZenServer, tmp_path: Path) -> None:
    other = ZenServer(tmp_path / "other", cede.url, cede.token)
    try:
        other.prepare("green")
        pool(cede, gpus=2, red=0, green=2)
        red = zen.run("red", "here", seconds=[120.0, 1.0])
        red.until("start")
        mine = requests_of(cede, "red")[0]["id"]
        green = other.run("green", "there")
        green.succeeds()
        red.succeeds()
        assert statuses(cede, "red") == ["preempted", "released"]
        assert statuses(cede, "green") == ["released"]
        # Each sees and touches its own only.
        assert mine not in {each["id"] for each in other.requests()}
        assert other.status("GET", f"/resource_requests/{mine}") == 404
        assert other.status("POST", f"/resource_requests/{mine}/release") == 404
    finally:
        other.stop()


@pytest.fixture
def silent() -> Iterator[str]:
    """Something that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_when_cede_does_not_answer_steps_fail_closed_or_open_and_nothing_hangs(
    cede: Serving, tmp_path: Path, silent: str
) -> None:
    """A ZenML server starts without cede as well."""
    server = ZenServer(tmp_path / "alone", silent, "no-token", CEDE_ZENML_TIMEOUT="4")
    try:
        server.prepare("red")
        closed = server.run("red", "closed", retries=0)
        assert closed.wait() != 0
        assert f"cede at {silent}: no answer" in closed.output
        assert "start the cede server" in closed.output
        steps = server.steps("closed")
        assert [each["status"] for each in steps] == ["failed"]
        assert closed.noted("start") == []
        listing = server.status("GET", "/resource_requests")
        assert listing == 500

        server.stop()
        server.start(CEDE_ZENML_FAIL_OPEN="true")
        opened = server.run("red", "opened", retries=0)
        opened.succeeds()
        assert "runs uncounted" in server.log
    finally:
        server.stop()


def test_a_setting_that_cannot_be_right_stops_the_zenml_server(
    cede: Serving, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match="CEDE_ZENML_TIMEOUT must be from"):
        ZenServer(tmp_path / "wrong", cede.url, cede.token, CEDE_ZENML_TIMEOUT="never")

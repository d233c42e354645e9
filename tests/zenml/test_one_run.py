"""Two pipelines share two GPUs: queue, preempt, retry, and both succeed. Always in `make test`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.serving import Serving
from tests.zenml.world import ZenServer, pool, requests_of, statuses, until

PATIENCE = 900.0  # seconds; every program of ZenML's takes some to start


def until_steps_are(zen: ZenServer, run: str, *expected: str) -> None:
    """ZenML writes down what becomes of a step after it has asked cede, or begun."""

    def look() -> bool:
        return [each["status"] for each in zen.steps(run)] == list(expected)

    until(look, PATIENCE, f"the steps of {run}")


@pytest.mark.system
@pytest.mark.timeout(3600)  # two ZenML programs start before it, and several in it
def test_two_pipelines_share_two_gpus(cede: Serving, zen: ZenServer, tmp_path: Path) -> None:
    pool(cede, gpus=2, red=0, blue=2)
    go, leave = tmp_path / "go", tmp_path / "leave"
    red = zen.run("red", "red-run", seconds=[600.0, 1.0], leave=str(leave))
    blue = zen.run("blue", "blue-run", seconds=[1.0], go=str(go))

    # Red borrows what blue does not use.
    red.until("start")
    assert statuses(cede, "red") == ["allocated"]
    until_steps_are(zen, "red-run", "running")

    # Blue wants what is its own: it waits, and red is told.
    go.touch()
    until(lambda: statuses(cede, "blue"), PATIENCE, "blue asks")
    assert statuses(cede, "blue") == ["queued"] and statuses(cede, "red")[0] == "preempting"
    until_steps_are(zen, "blue-run", "queued")
    listed = {each["id"]: each for each in zen.requests()}
    waiter = requests_of(cede, "blue")[0]
    assert listed[waiter["id"]]["status"] == "pending"
    assert "being freed for this in pool gpus" in listed[waiter["id"]]["status_reason"]
    why = cede.cede("why", waiter["id"]).stdout
    assert "pipeline sharing, run blue-run, step train" in why

    # Red's step stops by itself, and its retry is back in the queue as a new request.
    leave.touch()
    red.until("stopped")
    until(lambda: len(statuses(cede, "red")) == 2, PATIENCE, "red's retry asks again")
    first, second = requests_of(cede, "red")
    assert first["status"] == "preempted" and second["status"] in ("queued", "allocated")
    assert first["reason"]["beneficiary"] == waiter["id"]
    assert second["labels"]["replaces"] == first["id"] and "replaces" not in first["labels"]
    stop = f"step train of run red-run, request {first['id']}, is told to stop: "
    said = next(line for line in zen.log.splitlines() if stop in line)
    assert waiter["id"] in said and "reclaim" in said
    assert f"request {waiter['id']}, waits: 2 gpu are being freed for this" in zen.log

    blue.succeeds()
    red.succeeds()
    assert statuses(cede, "blue") == ["released"]
    assert statuses(cede, "red") == ["preempted", "released"]
    assert red.noted("start")[1] >= blue.noted("end")[0]
    assert [each["status"] for each in zen.steps("red-run")] == ["retried", "completed"]

"""Steps of dynamic pipelines on a real server: waiting, children, retries, typed errors."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path

import pytest

from cede import (
    Cancelled,
    Client,
    Failed,
    Preempted,
    Rejected,
    ResourceSettings,
    StepRetryConfig,
    pipeline,
    step,
)
from cede.model.errors import Invalid
from tests.client.serving import eventually

pytestmark = pytest.mark.system

BLUE = {"component": "blue", "resources": {"gpu": 2}, "kind": "work"}


# Document 002's three steps, as they stand there.


@step(
    settings={
        "resources": ResourceSettings(
            gpu_count=2,
            cpu_count=4,
            memory="16GiB",
        )
    }
)
def train() -> None: ...


@step(
    settings={
        "resources": ResourceSettings(
            gpu_count=1,
            preemptible=False,
        )
    }
)
def production_train() -> None: ...


@step(
    settings={
        "resources": ResourceSettings(
            gpu_count=1,
            pool_resources={"tensorrt_sessions": 1},
        )
    }
)
def infer() -> None: ...


@pytest.fixture
def pools(client: Client) -> Client:
    """Orchestrator red may borrow two GPUs that belong to orchestrator blue."""
    client.pools.create("gpus", {"gpu": 2, "tensorrt_sessions": 1}, settings={"grace": 30})
    client.policies.attach("gpus", "red", priority=1, reserved={"gpu": 0})
    client.policies.attach("gpus", "blue", priority=1, reserved={"gpu": 2})
    return client


def only_red(client: Client) -> dict:
    return next(iter(client.requests.list(component="red")))


def test_the_documented_steps_run(pools: Client) -> None:
    @pipeline(dynamic=True, orchestrator="blue", client=pools)
    def documented() -> None:
        train()
        production_train()
        infer()

    documented()
    found = list(pools.requests.list(component="blue"))
    asked = {each["labels"]["step"]: each["resources"] for each in found}
    assert asked["train"] == {"gpu": 2, "mcpu": 4000, "memory_mb": 17180, "step_run": 1}
    assert asked["production_train"] == {"gpu": 1, "step_run": 1}
    assert asked["infer"] == {"gpu": 1, "tensorrt_sessions": 1, "step_run": 1}
    assert {each["status"] for each in found} == {"released"}
    assert {each["labels"]["pipeline"] for each in found} == {"documented"}
    assert len({each["labels"]["run"] for each in found}) == 1


def test_a_step_returns_what_its_function_returns_from_a_child(pools: Client) -> None:
    @step(settings={"resources": {"gpu_count": 1}})
    def double(values: list[int], *, factor: int = 2) -> tuple[int, list[int]]:
        return os.getpid(), [factor * each for each in values]

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def flow() -> tuple[int, list[int]]:
        return double(list(range(100_000)), factor=3)

    child, values = flow()
    assert child != os.getpid()
    assert values == [3 * each for each in range(100_000)]


def test_what_was_printed_before_is_not_printed_twice(
    pools: Client, capfd: pytest.CaptureFixture
) -> None:
    @step
    def talk() -> None:
        print("inside")

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def flow() -> None:
        print("before")
        talk()

    flow()
    assert capfd.readouterr().out.split() == ["before", "inside"]


def test_the_functions_own_exception_comes_back(pools: Client) -> None:
    @step
    def broken() -> None:
        raise KeyError("lost")

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def flow() -> None:
        broken()

    with pytest.raises(KeyError, match="lost") as caught:
        flow()
    assert "in broken" in caught.value.__notes__[0]
    assert only_red(pools)["status"] == "failed"


def test_failures_are_retried_and_the_server_counts(pools: Client, tmp_path: Path) -> None:
    log = tmp_path / "log"

    @step(retry={"max_retries": 2, "delay": 0})
    def flaky() -> str:
        with log.open("a") as file:
            file.write(os.environ["CEDE_ATTEMPT"])
        if len(log.read_text()) < 3:
            raise ValueError
        return "at last"

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def flow() -> str:
        return flaky()

    assert flow() == "at last"
    assert log.read_text() == "123"
    assert only_red(pools)["attempt"] == 3


@pytest.mark.parametrize("how", ["returned", "raised"])
def test_what_cannot_be_pickled_is_a_clear_error(pools: Client, how: str) -> None:
    @step
    def awkward() -> object:
        lock = threading.Lock()
        if how == "raised":
            raise ValueError(lock)
        return lock

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def flow() -> object:
        return awkward()

    with pytest.raises(Failed, match="cannot be sent between processes"):
        flow()


@pytest.mark.parametrize("retries", [0, 1])
def test_a_preempted_step_is_retried_or_says_so(
    pools: Client, tmp_path: Path, retries: int
) -> None:
    log = tmp_path / "log"

    @step(
        settings={"resources": ResourceSettings(gpu_count=2)},
        retry=StepRetryConfig(max_retries=retries),
        lease=10,
    )
    def long() -> str:
        try:
            with log.open("a") as file:
                file.write("start ")
            if os.environ["CEDE_ATTEMPT"] == "1":
                time.sleep(1000)
        finally:
            with log.open("a") as file:
                file.write("end ")
        return "done"

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def flow() -> str:
        return long()

    def owner() -> None:
        eventually(lambda: log.exists() and log.read_text())
        blue = pools.requests.create(BLUE)
        eventually(lambda: pools.requests.get(blue["id"])["status"] == "allocated")
        pools.requests.release(blue["id"])

    reclaim = threading.Thread(target=owner)
    reclaim.start()
    try:
        if retries:
            assert flow() == "done"
            assert log.read_text() == "start end start end "
        else:
            with pytest.raises(Preempted) as caught:
                flow()
            assert caught.value.code == "preempted"
            assert log.read_text() == "start end "
    finally:
        reclaim.join()


def test_rejected_says_which_bound(pools: Client) -> None:
    @step(settings={"resources": ResourceSettings(gpu_count=10)})
    def huge() -> None: ...

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def flow() -> None:
        huge()

    with pytest.raises(Rejected, match="10 exceeds the capacity 2") as caught:
        flow()
    assert caught.value.code == "capacity_exceeded" and caught.value.fix


def test_cancelled_by_somebody_else(pools: Client, tmp_path: Path) -> None:
    @step(settings={"resources": ResourceSettings(gpu_count=2)}, lease=10)
    def long() -> None:
        (tmp_path / "started").touch()
        time.sleep(1000)

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def flow() -> None:
        long()

    def cancel() -> None:
        eventually(lambda: (tmp_path / "started").exists())
        pools.requests.cancel(only_red(pools)["id"])

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(Cancelled):
        flow()
    canceller.join()


def test_a_step_operator_is_the_requester_of_its_steps(
    pools: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools.policies.attach("gpus", "remote", component_type="step_operator", priority=1)
    monkeypatch.setenv("CEDE_ORCHESTRATOR", "red")

    @step(step_operator="remote")
    def there() -> None: ...

    @step
    def here() -> None: ...

    @pipeline(dynamic=True, client=pools)
    def flow() -> None:
        there()
        here()

    flow()
    found = {each["labels"]["step"]: each for each in pools.requests.list()}
    assert (found["there"]["component"], found["there"]["component_type"]) == (
        "remote",
        "step_operator",
    )
    assert (found["here"]["component"], found["here"]["component_type"]) == ("red", "orchestrator")


def test_without_a_policy_it_runs_untracked_and_says_so_once(
    pools: Client, caplog: pytest.LogCaptureFixture
) -> None:
    @step(retry={"max_retries": 1})
    def anything(attempt: int) -> str:
        if int(os.environ["CEDE_ATTEMPT"]) < attempt:
            raise ValueError
        return "ran"

    @pipeline(dynamic=True, orchestrator="unknown", client=pools)
    def flow() -> list[str]:
        return [anything(1), anything(2)]

    with caplog.at_level(logging.WARNING, "cede"):
        assert flow() == ["ran", "ran"]
    assert [each.message for each in caplog.records if "untracked" in each.message] == [
        "orchestrator:unknown has no policy in any pool, so this runs untracked"
    ]
    assert list(pools.requests.list()) == []


def test_a_static_pipeline_takes_no_part_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    @step(settings={"resources": ResourceSettings(gpu_count=2)})
    def where() -> int:
        return os.getpid()

    @pipeline
    def flow() -> int:
        return where()

    with caplog.at_level(logging.WARNING, "cede"):
        assert flow() == os.getpid()
    assert "static" in caplog.text and "dynamic=True" in caplog.text
    assert where() == os.getpid()


def test_settings_that_make_no_sense_are_refused_where_they_are_written() -> None:
    with pytest.raises(Invalid, match=r"settings\.resources\.gpus"):
        step(settings={"resources": {"gpus": 2}})(lambda: None)
    with pytest.raises(Invalid, match=r"retry\.times"):
        step(retry={"times": 2})(lambda: None)
    with pytest.raises(Invalid, match="memory"):
        ResourceSettings(memory="16 gigs")

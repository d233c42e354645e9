"""Steps from threads, coroutines and futures: each makes its request, or it is an error."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from pathlib import Path

import pytest

from cede import CedeClientError, Client, ResourceSettings, StepFuture, pipeline, step
from tests.client.serving import WAIT_SECONDS, eventually
from tests.client.test_supervisor import alive

pytestmark = pytest.mark.system

GPUS = 8
CALLS = 50
ONE_GPU = {"resources": ResourceSettings(gpu_count=1)}


class Devices:
    """The observer: a lock for each device, which steps take themselves. A ninth holder finds none,
    whatever cede believes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "log"
        for number in range(GPUS):
            (folder / str(number)).touch()

    def use(self) -> int:
        """Hold one until all were seen in use at once; the process that did it."""
        for number in range(GPUS):
            with (self._folder / str(number)).open() as device:
                try:
                    fcntl.flock(device, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                with self._log.open("a") as log:
                    log.write(f"{number}\n")
                eventually(lambda: len(set(self.used())) == GPUS)
                return os.getpid()
        raise AssertionError(f"more than {GPUS} hold a device at once")

    def used(self) -> list[str]:
        return self._log.read_text().split()


@pytest.fixture
def devices(tmp_path: Path) -> Devices:
    return Devices(tmp_path)


@pytest.fixture
def pools(client: Client) -> Client:
    client.pools.create("gpus", {"gpu": GPUS})
    client.policies.attach("gpus", "red", priority=1, reserved={"gpu": GPUS})
    return client


def made(client: Client) -> list[dict]:
    return list(client.requests.list(component="red"))


def all_kept_to_the_pool(client: Client, devices: Devices, found: list[int]) -> None:
    assert len(devices.used()) == len(found) == CALLS
    assert len(set(found)) == CALLS and os.getpid() not in found
    requests = made(client)
    assert [each["status"] for each in requests] == ["released"] * CALLS
    assert client.pools.get("gpus")["occupied"] == {"gpu": 0}


def test_fifty_threads_never_hold_more_than_the_pool_has(pools: Client, devices: Devices) -> None:
    @step(settings=ONE_GPU)
    def use() -> int:
        return devices.use()

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def flow() -> list[int]:
        with ThreadPoolExecutor(CALLS) as threads:
            return [each.result() for each in [threads.submit(use) for _ in range(CALLS)]]

    all_kept_to_the_pool(pools, devices, flow())


def test_fifty_coroutines_never_hold_more_than_the_pool_has(
    pools: Client, devices: Devices
) -> None:
    @step(settings=ONE_GPU)
    async def use() -> int:
        await asyncio.sleep(0)
        return devices.use()

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    async def flow() -> list[int]:
        return await asyncio.gather(*(use() for _ in range(CALLS)))

    all_kept_to_the_pool(pools, devices, asyncio.run(flow()))


@pytest.mark.parametrize("how", ["gather", "to_thread", "executor", "plain thread"])
def test_wherever_it_is_called_it_makes_its_request(pools: Client, how: str) -> None:
    @step(settings=ONE_GPU)
    def where() -> int:
        return os.getpid()

    async def in_coroutine() -> int:
        loop = asyncio.get_running_loop()
        match how:
            case "gather":
                (value,) = await asyncio.gather(where.submit())
            case "to_thread":
                value = await asyncio.to_thread(where)
            case _:
                value = await loop.run_in_executor(None, where)
        return value

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def flow() -> int:
        if how == "plain thread":
            found: list[int] = []
            thread = threading.Thread(target=lambda: found.append(where()))
            thread.start()
            thread.join()
            return found[0]
        return asyncio.run(in_coroutine())

    assert flow() != os.getpid()
    assert [each["status"] for each in made(pools)] == ["released"]


def test_futures_come_back_in_order_and_feed_each_other(pools: Client) -> None:
    @step(settings=ONE_GPU)
    def square(value: int, *, plus: int = 0) -> int:
        return value * value + plus

    @step
    def add(*values: int) -> int:
        return sum(values)

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def flow() -> tuple[list[int], int, set[int]]:
        mapped = square.map([1, 2, 3], plus=1)
        total = add.submit(*mapped)
        done = {each.result() for each in as_completed(mapped)}
        return [each.result() for each in mapped], total.result(), done

    assert flow() == ([2, 5, 10], 17, {2, 5, 10})


def test_a_pipeline_waits_for_what_it_submitted(pools: Client, tmp_path: Path) -> None:
    @step(settings=ONE_GPU)
    def late() -> None:
        (tmp_path / "done").touch()

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def flow() -> None:
        late.submit()

    flow()
    assert (tmp_path / "done").exists()


def test_an_error_that_nobody_looked_at_fails_the_pipeline(pools: Client) -> None:
    @step
    def broken() -> None:
        raise KeyError("lost")

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def flow(*, look: bool) -> None:
        future = broken.submit()
        if look:
            assert isinstance(future.exception(), KeyError)

    flow(look=True)
    with pytest.raises(KeyError, match="lost"):
        flow(look=False)


def sleeping(step_seconds: str) -> None:
    os.execvp("sleep", ["sleep", step_seconds])


def test_a_cancelled_future_stops_its_work_and_its_request(pools: Client) -> None:
    seconds = f"{6000 + os.getpid() % 1000}.25"

    @step(settings=ONE_GPU)
    def long() -> None:
        sleeping(seconds)

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def flow() -> StepFuture[None]:
        future = long.submit()
        eventually(lambda: alive(f"sleep {seconds}"))
        assert future.cancel()
        return future

    assert flow().cancelled()
    assert not alive(f"sleep {seconds}")
    assert [each["status"] for each in made(pools)] == ["cancelled"]


def test_when_the_pipeline_fails_nothing_of_it_goes_on(pools: Client) -> None:
    seconds = f"{7000 + os.getpid() % 1000}.25"

    @step(settings=ONE_GPU)
    def long() -> None:
        sleeping(seconds)

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    async def flow() -> None:
        long.map(range(0))
        futures = [long.submit() for _ in range(GPUS + 2)]
        await asyncio.to_thread(eventually, lambda: len(alive(f"sleep {seconds}")) == GPUS)
        assert not any(each.done() for each in futures)
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        asyncio.run(flow())
    assert not alive(f"sleep {seconds}")
    assert {each["status"] for each in made(pools)} == {"cancelled"}


def test_a_sync_step_in_an_event_loop_makes_its_request_and_says_what_to_write(
    pools: Client, caplog: pytest.LogCaptureFixture
) -> None:
    @step(settings=ONE_GPU)
    def where() -> int:
        return os.getpid()

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    async def flow() -> int:
        return where()

    with caplog.at_level(logging.WARNING, "cede"):
        assert asyncio.run(flow()) != os.getpid()
    assert "await where.submit" in caplog.text


def test_with_two_pipelines_a_thread_of_neither_is_an_error(pools: Client) -> None:
    @step
    def lost() -> None: ...

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def inner() -> None:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(lost).result()

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def outer() -> None:
        inner()

    with pytest.raises(CedeClientError, match="outer, inner run") as caught:
        outer()
    assert "lost.submit" in caught.value.fix
    assert made(pools) == []


@step
def anywhere() -> None: ...


def call_anywhere() -> None:
    anywhere()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_in_another_process_it_is_an_error(pools: Client, method: str) -> None:
    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def flow() -> None:
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(1, mp_context=context) as processes:
            processes.submit(call_anywhere).result(WAIT_SECONDS)

    with pytest.raises(CedeClientError, match="another process than its pipeline"):
        flow()
    assert made(pools) == []


def test_after_its_pipeline_has_ended_it_is_an_error(pools: Client) -> None:
    @step
    async def late() -> None: ...

    kept = []

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    def flow() -> None:
        kept.append(late())

    flow()
    with pytest.raises(CedeClientError, match="after its pipeline flow has ended"):
        asyncio.run(kept[0])
    assert made(pools) == []


@pytest.mark.parametrize("place", ["no pipeline", "static pipeline", "step"])
def test_where_a_call_is_plain_so_is_submit(pools: Client, place: str) -> None:
    @step
    async def double(value: int) -> int:
        return 2 * value

    def use() -> list[int]:
        return [each.result() for each in double.map([1, 2])]

    if place == "no pipeline":
        assert use() == [2, 4]
    elif place == "static pipeline":
        assert pipeline(use)() == [2, 4]
    else:
        outer = step(use)
        run = pipeline(dynamic=True, orchestrator="red", client=pools)(lambda: outer())
        assert run() == [2, 4]
        assert len(made(pools)) == 1


def test_a_static_async_pipeline_says_that_it_takes_no_part(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @step(settings=ONE_GPU)
    async def where() -> int:
        return os.getpid()

    @pipeline
    async def flow() -> int:
        return await where()

    with caplog.at_level(logging.WARNING, "cede"):
        assert asyncio.run(flow()) == os.getpid()
    assert "static" in caplog.text


def test_a_cancelled_async_step_runs_its_finally_blocks(pools: Client, tmp_path: Path) -> None:
    @step(settings=ONE_GPU)
    async def long() -> None:
        try:
            (tmp_path / "started").touch()
            await asyncio.sleep(1000)
        finally:
            (tmp_path / "tidied").touch()

    @pipeline(dynamic=True, orchestrator="red", client=pools)
    async def flow() -> None:
        task = asyncio.ensure_future(long())
        while not (tmp_path / "started").exists():
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(flow())
    assert (tmp_path / "tidied").exists()
    assert [each["status"] for each in made(pools)] == ["cancelled"]

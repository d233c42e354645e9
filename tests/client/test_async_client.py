"""`AsyncClient` does what `Client` does, by the same code, while the event loop goes on."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from cede import AsyncClient, Client, NotFound
from cede.client import asynchronous, client
from tests.client.serving import WAIT_SECONDS, Serving, two_teams

AS_RED = {"component": "red", "component_type": "team"}
BLUE = {"component": "blue", "component_type": "team", "resources": {"gpu": 2}, "kind": "work"}

GROUPS = ("Pools", "Policies", "Tenants", "Requests", "Nodes", "Tokens", "Audit")
# What a twin does in its own way, because it lives in an event loop.
OWN = {"allocation", "close", "server"}


def public(kind: type) -> dict[str, object]:
    return {name: each for name, each in vars(kind).items() if not name.startswith("_")}


@pytest.mark.parametrize("name", ["Client", *GROUPS])
def test_every_method_is_the_plain_clients_own(name: str) -> None:
    plain, twin = getattr(client, name), getattr(asynchronous, f"Async{name}")
    assert set(public(plain)) == set(public(twin))
    for method, made in public(twin).items():
        if method not in OWN:
            assert inspect.unwrap(made) is getattr(plain, method), method


@pytest.mark.system
def test_calls_lists_and_errors(server: Serving, client: Client) -> None:
    two_teams(client)

    async def use() -> None:
        async with AsyncClient(server.url, server.token) as twin:
            assert (await twin.whoami())["role"] == "admin"
            made = await asyncio.gather(
                *(twin.requests.create({"kind": "work", **AS_RED}) for _ in range(5))
            )
            found = [each["id"] async for each in twin.requests.list(component="red")]
            assert sorted(found) == sorted(each["id"] for each in made)
            with pytest.raises(NotFound):
                await twin.pools.get("nowhere")

    asyncio.run(use())


@pytest.mark.system
def test_units_for_a_block_and_the_word_to_stop(server: Serving, client: Client) -> None:
    two_teams(client)

    async def use() -> None:
        async with AsyncClient(server.url, server.token) as twin:
            async with twin.allocation(gpu=2, lease=15, **AS_RED) as held:
                assert (held.pool, held.attempt, held.should_stop) == ("gpus", 1, False)
                blue = await twin.requests.create(BLUE)
                await asyncio.wait_for(held.preempted.wait(), WAIT_SECONDS)
                assert held.should_stop
            while (await twin.requests.get(blue["id"]))["status"] != "allocated":
                await asyncio.sleep(0.05)
            await twin.requests.release(blue["id"])

    asyncio.run(use())


@pytest.mark.system
def test_a_task_that_is_cancelled_waits_no_longer(server: Serving, client: Client) -> None:
    two_teams(client)
    client.requests.create({**BLUE, "lease": "none"})
    waits = asyncio.Event()

    async def wait(twin: AsyncClient) -> None:
        async with twin.allocation(gpu=1, on_wait=lambda why: waits.set(), **AS_RED):
            raise AssertionError("granted")

    async def use() -> None:
        async with AsyncClient(server.url, server.token) as twin:
            task = asyncio.ensure_future(wait(twin))
            await asyncio.wait_for(waits.wait(), WAIT_SECONDS)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            (red,) = [each async for each in twin.requests.list(component="red")]
            assert red["status"] == "cancelled"

    asyncio.run(use())

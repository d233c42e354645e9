"""One run of one seed."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.clients import Client
from tests.simulation.cluster import Cluster
from tests.simulation.faults import Faults
from tests.simulation.hosts import HERE, virtual
from tests.simulation.loop import Stuck
from tests.simulation.nodes import Node
from tests.simulation.world import World

NODES = (2, 3)
CLIENTS = 6
STORMY = 300.0
# Longer than every lease, grace and pause: what has not ended then never will.
CALM = 1_500.0
LOOK = 1.0


@dataclass(frozen=True)
class Outcome:
    seed: int
    events: int
    trace: str
    problems: list[str]
    counts: dict[str, int]
    lines: list[str]


def simulate(
    seed: int,
    *,
    bug: Callable[[], AbstractContextManager[object]] = nullcontext,
    keep: bool = False,
    stormy: float = STORMY,
    to_the_end: bool = True,
) -> Outcome:
    """Run a seed; odd ones have two servers on one database, even ones a server on a file. Not
    `to_the_end`: only until the first thing is broken.
    """
    folder = Path(tempfile.mkdtemp(prefix="cede-simulation-", dir=_memory()))
    world = World(seed, folder)
    world.lines = [] if keep else None
    try:
        with virtual(world.dice), bug():
            asyncio.set_event_loop(world.loop)
            try:
                world.loop.run_until_complete(_first(world, stormy, to_the_end))
            except Stuck as error:
                world.account.broken(str(error))
            _end(world)
    finally:
        asyncio.set_event_loop(None)
        world.loop.close()
        shutil.rmtree(folder)
    account = world.account
    return Outcome(
        seed, world.events, world.trace, account.problems, account.counts, world.lines or []
    )


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _end(world: World) -> None:
    for task in asyncio.all_tasks(world.loop):
        task.cancel()
    world.loop.run_until_complete(asyncio.sleep(0))


async def _first(world: World, stormy: float, to_the_end: bool) -> None:
    """Run to the end, or until something is broken."""
    run = asyncio.ensure_future(_run(world, stormy))
    while not run.done():
        await asyncio.wait([run], timeout=LOOK)
        if world.account.problems and not to_the_end:
            return
    run.result()


async def _run(world: World, stormy: float) -> None:
    HERE.set(world.host("elsewhere"))
    cluster = Cluster(world, shared=world.seed % 2 == 1)
    await cluster.set_up()
    for number in range(world.dice.choice(NODES)):
        node = Node(cluster, f"node{number}", 2, cluster.secrets["join"])
        cluster.nodes.append(node)
        node.start_agent()
    teams = ("red", "blue")
    clients = [Client(cluster, f"client{n}", teams[n % 2]) for n in range(CLIENTS)]
    until = world.loop.time() + stormy
    faults = Faults(cluster)
    living = [asyncio.ensure_future(client.live(until)) for client in clients]
    await faults.run(until)
    await faults.heal()
    for node in cluster.nodes:
        node.start_agent()
    done, waiting = await asyncio.wait(living, timeout=CALM)
    for each in done:
        each.result()
    if waiting:
        world.account.broken(f"liveness: {len(waiting)} clients wait in a calm world")
    await asyncio.sleep(60)
    world.account.at_the_end(await cluster.statuses())

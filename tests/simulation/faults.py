"""What goes wrong, drawn by the seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from cede.store.errors import DiskFull
from tests.simulation.cluster import DATABASE, Cluster
from tests.simulation.nodes import Node

EVERY = 8.0  # seconds between two faults, on average
PART = 0.4  # of the kinds of faults, in one run


class Faults:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.dice = cluster.world.dice
        self._going: set[asyncio.Task[None]] = set()
        kinds: list[Callable[[], Coroutine[Any, Any, None]]] = [
            self.kill_server,
            self.server_dies_in_a_step,
            self.freeze_server,
            self.kill_agent,
            self.agent_dies_in_a_step,
            self.freeze_agent,
            self.reboot,
            self.partition,
            self.bad_network,
            self.journal_full,
            self.second_agent,
            self.wall_clock_jumps,
            self.edit,
            self.edit,
            self.older_copy,
            self.flipped_bit,
        ]
        if cluster.shared:
            kinds += [self.cut_off_database, self.lonely_leader, self.lonely_leader]
        else:
            kinds += [self.torn_write, self.disk_full]
        self._copied: set[str] = set()
        self._copies = 0
        # Each run has some of them only: a fault that ends what another one began hides it.
        self._kinds = [each for each in kinds if self.dice.random() < PART] or kinds

    async def run(self, until: float) -> None:
        while self.world.loop.time() < until:
            await asyncio.sleep(self.dice.expovariate(1 / EVERY))
            kind = self.dice.choice(self._kinds)
            self.world.note("fault", kind.__name__)
            self.cluster.account.count("faults")
            task = self.world.loop.create_task(kind())
            self._going.add(task)
            task.add_done_callback(self._going.discard)

    async def heal(self) -> None:
        """Everything that was begun comes to its end; then nothing fails any more."""
        while self._going:
            await asyncio.sleep(1)
        self.world.calm = True
        self.cluster.network.loss = self.cluster.network.doubling = 0.0

    def _server(self) -> str:
        return self.dice.choice(list(self.cluster.servers))

    def _some_time(self, average: float = 8.0) -> Any:
        return asyncio.sleep(self.dice.expovariate(1 / average))

    async def kill_server(self) -> None:
        name = self._server()
        self.cluster.held_back.add(name)
        self.cluster.kill(name)
        await self._some_time()
        self.cluster.held_back.discard(name)

    async def server_dies_in_a_step(self) -> None:
        server = self.cluster.servers[self._server()]
        if server is not None:
            server.die_in = self.dice.randrange(200)

    async def freeze_server(self) -> None:
        server = self.cluster.servers[self._server()]
        if server is not None and server.thawed.is_set():
            server.thawed.clear()
            await self._some_time(15)
            server.thawed.set()

    async def cut_off_database(self) -> None:
        host = self.dice.choice(self.cluster.hosts)
        host.unreachable.add(DATABASE)
        server = self.cluster.servers[host.name]
        if server is not None and self.dice.random() < 0.5:
            # The database notices that the connection is lost; the server does not yet.
            self.cluster.lose_session(server)
        await self._some_time(12)
        host.unreachable.discard(DATABASE)

    async def lonely_leader(self) -> None:
        """A server loses its database, or is frozen. Some nodes, not all, reach only that one; so
        its successor has somewhere else to start their work.
        """
        server = next((each for each in self.cluster.servers.values() if each is not None), None)
        if server is None:
            return
        host = server.host
        others = [each.name for each in self.cluster.hosts if each is not host]
        count = self.dice.randrange(1, len(self.cluster.nodes))
        nodes = [node.host for node in self.dice.sample(self.cluster.nodes, count)]
        for node in nodes:
            node.unreachable.update(others)
        lasts = self.dice.uniform(5, 120)
        if self.dice.random() < 0.5:
            host.unreachable.add(DATABASE)
            self.cluster.lose_session(server)
            await asyncio.sleep(lasts)
            host.unreachable.discard(DATABASE)
        elif server.thawed.is_set():
            server.thawed.clear()
            await asyncio.sleep(lasts)
            server.thawed.set()
        await self._some_time(15)
        for node in nodes:
            node.unreachable.difference_update(others)

    def _node(self) -> Any:
        return self.dice.choice(self.cluster.nodes)

    async def kill_agent(self) -> None:
        node = self._node()
        if node.agent is not None:
            node.agent.die()
            await self._some_time(15)
            node.start_agent()

    async def agent_dies_in_a_step(self) -> None:
        node = self._node()
        if node.agent is not None:
            node.agent.crash_in = self.dice.randrange(30)
            await self._some_time(15)
            node.start_agent()
            if node.agent is not None:
                node.agent.crash_in = None

    async def freeze_agent(self) -> None:
        agent = self._node().agent
        if agent is not None and not agent.frozen:
            agent.frozen = True
            await self._some_time(15)
            agent.thaw()

    async def reboot(self) -> None:
        node = self._node()
        node.reboot()
        await self._some_time()
        node.start_agent()

    async def partition(self) -> None:
        hosts = [node.host for node in self.cluster.nodes] + self.cluster.hosts
        one, other = self.dice.sample(hosts, 2)
        one.unreachable.add(other.name)
        await self._some_time(15)
        one.unreachable.discard(other.name)

    async def bad_network(self) -> None:
        network = self.cluster.network
        network.loss, network.doubling = self.dice.uniform(0, 0.3), self.dice.uniform(0, 0.3)
        network.slowness = self.dice.choice((0.005, 0.02, 0.5, 2.0))
        await self._some_time(20)
        network.loss, network.doubling, network.slowness = 0.0, 0.0, 0.02

    async def journal_full(self) -> None:
        node = self._node()
        node.is_full = True
        await self._some_time()
        node.is_full = False

    async def wall_clock_jumps(self) -> None:
        self.dice.choice(self.cluster.hosts).jump += self.dice.uniform(-100_000, 100_000)

    async def edit(self) -> None:
        """An operator gives a team more or less."""
        await self.cluster.edit(self.dice.choice(("farm", "counted")), self.dice.randrange(5))

    async def second_agent(self) -> None:
        """Somebody starts a copy of a node's data folder on another machine."""
        node = self._node()
        if node.name in self._copied:  # that machine's lock refuses a second agent
            return
        self._copied.add(node.name)
        copy = Node(self.cluster, node.name, len(node.devices), node.join)
        self._copies += 1
        copy.host = self.world.host(f"{node.name}-copy{self._copies}")
        copy.known, copy.entries = node.known, list(node.entries)
        copy.start_agent()
        await self._some_time(40)
        copy.reboot()
        copy.task.cancel()
        self._copied.discard(node.name)

    # Probes: with every server dead, and put back as it was

    async def older_copy(self) -> None:
        """Each server must refuse a database that lost commits which were acknowledged."""
        old = self.cluster.disk.image(anchors=False)
        known = self.cluster.account.index
        await asyncio.sleep(self.dice.uniform(2, 10))
        with self.cluster.all_dead() as now:
            for host in self.cluster.hosts_that_saw(known):
                self.cluster.disk.put(old, anchors=False)
                if self.cluster.probe(host) is not None:
                    self.cluster.account.broken(f"S25: {host.name} takes an older database")
                self.cluster.account.count("older copies")
            self.cluster.disk.put(now)

    async def flipped_bit(self) -> None:
        """A server must refuse a database with a changed bit, unless it changes nothing."""
        with self.cluster.all_dead() as now:
            right = self.cluster.probe(self.cluster.hosts[0])
            for _ in range(3):
                self.cluster.disk.put(self.cluster.disk.flipped(now))
                found = self.cluster.probe(self.cluster.hosts[0])
                if found is not None and found != right:
                    self.cluster.account.broken("a damaged database is served")
                self.cluster.account.count("flips refused" if found is None else "flips harmless")
            self.cluster.disk.put(now)

    # The disk of a single server

    async def torn_write(self) -> None:
        """The power goes during a commit."""
        server = self.cluster.servers["one"]
        if server is None or server.torn:
            return
        server.torn = True

    async def disk_full(self) -> None:
        server = self.cluster.servers["one"]
        if server is not None:
            server.full = DiskFull()
            await self._some_time()
            server.full = None

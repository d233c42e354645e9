"""Servers, nodes and clients of one run, and who reaches whom."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from cede.model.subject import Subject
from cede.model.token import Role, Token
from cede.server import clock, tokens
from cede.server.ids import new_id
from cede.store import Store
from cede.store.errors import StoreError
from tests.simulation.answers import Answer, Away
from tests.simulation.databases import Disk, SharedStore, Terms
from tests.simulation.hosts import HERE, Host
from tests.simulation.network import Network
from tests.simulation.servers import Server
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.nodes import Node

ROLES = {
    "admin": (Role.ADMIN, ()),
    "red": (Role.SUBMITTER, (Subject("team", "red"),)),
    "blue": (Role.SUBMITTER, (Subject("team", "blue"),)),
    "join": (Role.JOIN, ()),
}
DATABASE = "database"  # the host between which and a server a partition may be
POLL = 0.2
_ENTITIES = ("pools", "nodes", "policies", "tenants", "requests", "allocations")
# A server whose database does not answer for so long gives up; a kernel may take its time.
DATABASE_TIMEOUT = (10.0, 180.0)
CAPACITY = 6


class Cluster:
    def __init__(self, world: World, *, shared: bool) -> None:
        self.world = world
        self.account = world.account
        self.shared = shared
        self.network = Network(world)
        self.disk = Disk(world.folder / "data", world.dice)
        self.terms = Terms(world.loop.time)
        self.hosts = [world.host(name) for name in (("one", "two") if shared else ("one",))]
        self.servers: dict[str, Server | None] = {host.name: None for host in self.hosts}
        self.nodes: list[Node] = []
        self.secrets: dict[str, str] = {}
        self.held_back: set[str] = set()  # servers that are not to be started now
        self.seen: dict[str, int] = {}  # the last index that each server knew of
        self._following: dict[str, SharedStore] = {}  # stores of servers that wait for their term
        self._database = world.host(DATABASE)
        self._starting = [world.loop.create_task(self._keep_up(host)) for host in self.hosts]

    # Servers

    async def _keep_up(self, host: Host) -> None:
        """A service manager: starts the server again a while after it died."""
        while True:
            await asyncio.sleep(self.world.dice.uniform(0.1, 1.0))
            server = self.servers[host.name]
            if host.name in self.held_back or (server is not None and server.alive):
                continue
            with _at(host):
                self.servers[host.name] = await self._started(host)

    async def _started(self, host: Host) -> Server | None:
        self.world.note("server starts", host.name)
        try:
            if not self.shared:
                store = Store(self.disk.url, anchor=self._anchor(host))
                store.take_over()
                return Server(self.world, host, store, self.disk, self)
            store = SharedStore(self.disk.url, self._anchor(host), self.terms)
            self._following[host.name] = store
            while DATABASE in host.unreachable or not store.try_take_over():
                if DATABASE not in host.unreachable:
                    self.seen[host.name] = self.account.index
                await asyncio.sleep(POLL)
                if self._following.get(host.name) is not store:
                    return None  # killed meanwhile
            del self._following[host.name]
            return Server(self.world, host, store, self.disk, self)
        except StoreError as error:
            self.account.broken(f"{host.name} does not start: {error}")
            return None

    async def database_answers(self, host: Host) -> bool:
        """Wait until the database can be reached; False if that takes too long."""
        most = self.world.dice.uniform(*DATABASE_TIMEOUT)
        waited = 0.0
        while DATABASE in host.unreachable:
            await asyncio.sleep(POLL)
            waited += POLL
            if waited >= most:
                return False
        return True

    def committed(self, server: Server) -> None:
        writer = server.writer
        self.account.committed(server.store.epoch, writer.index, writer._state)
        self.seen[server.host.name] = writer.index

    def kill(self, name: str) -> None:
        if (following := self._following.pop(name, None)) is not None:
            following.close()
        if (server := self.servers[name]) is not None:
            server.die()
            self.servers[name] = None

    @contextmanager
    def all_dead(self) -> Iterator[dict[str, bytes]]:
        """Every server is dead and none starts; what is on the disk."""
        names = [name for name in self.servers if name not in self.held_back]
        self.held_back.update(names)
        for name in self.servers:
            self.kill(name)
        try:
            yield self.disk.image()
        finally:
            self.held_back.difference_update(names)

    def hosts_that_saw(self, index: int) -> list[Host]:
        """Those that have committed, or followed, what came after it."""
        return [host for host in self.hosts if self.seen.get(host.name, 0) > index]

    def _anchor(self, host: Host) -> Path:
        return self.disk.folder / (f"anchor-{host.name}" if self.shared else "anchor")

    def probe(self, host: Host) -> dict[str, Any] | None:
        """What a server would know if it started now; None if it refuses to."""
        terms = Terms(self.world.loop.time)
        anchor = self._anchor(host)
        with _at(host):
            if self.shared:
                store: Store = SharedStore(self.disk.url, anchor, terms)
            else:
                store = Store(self.disk.url, anchor=anchor)
            try:
                if isinstance(store, SharedStore):
                    store.try_take_over()
                else:
                    store.take_over()
                state = store.load().state
                if store.scrub():
                    return None
            except (StoreError, SQLAlchemyError, OSError, ValueError, TypeError):
                return None
            finally:
                with contextlib.suppress(SQLAlchemyError, OSError):
                    store.close()
        return {name: dict(getattr(state, name).items()) for name in _ENTITIES}

    def lose_session(self, server: Server) -> None:
        if self.terms.holder is server.store:
            self.terms.holder = None

    # Operators

    async def edit(self, pool: str, reserve: int) -> None:
        """Give red another reserve, if anybody hears it."""
        for name in self.servers_in_turn():
            server, admin = self.servers[name], self.secrets["admin"]
            if server is None:
                continue
            with contextlib.suppress(Away):
                found = await server.call("GET", f"/api/v1/policies?pool={pool}", admin)
                mine = [each for each in (found.body or {}).get("items", ()) if found.status == 200]
                red = next((each for each in mine if each["component"] == "red"), None)
                if red is not None:
                    path, body = f"/api/v1/policies/{red['id']}", {"reserved": {"gpu": reserve}}
                    self.account.refused_or_done(await server.call("PATCH", path, admin, body))

    async def statuses(self) -> dict[str, str]:
        """Every request that the server knows, once all is calm."""
        found: dict[str, str] = {}
        cursor = ""
        while True:
            answer = await self._read(f"/api/v1/requests?limit=500{cursor}")
            found |= {each["id"]: each["status"] for each in answer.body["items"]}
            if not answer.body.get("next"):
                return found
            cursor = f"&cursor={answer.body['next']}"

    async def _read(self, path: str) -> Answer:
        """The answer of the server that leads, once there is one."""
        while True:
            for server in self.servers.values():
                with contextlib.suppress(Away):
                    if server is not None:
                        answer = await server.call("GET", path, self.secrets["admin"])
                        if answer.status == 200:
                            return answer
            await asyncio.sleep(POLL)

    # Calls

    def servers_in_turn(self) -> list[str]:
        names = list(self.servers)
        self.world.dice.shuffle(names)
        return names

    async def call(
        self,
        from_: Host,
        to: str,
        method: str,
        path: str,
        token: str,
        body: Any = None,
        timeout: float = 10.0,
        key: str = "",
    ) -> Answer:
        host = next(each for each in self.hosts if each.name == to)

        async def handle() -> Answer:
            server = self.servers[to]
            if server is None:
                raise Away(f"{to} is not there")
            return await server.call(method, path, token, body, key)

        return await self.network.call(from_, host, handle, timeout)

    # The beginning

    async def set_up(self) -> None:
        """Tokens, a pool of nodes and a counted one, and two teams in each."""
        while (server := next((s for s in self.servers.values() if s is not None), None)) is None:
            await asyncio.sleep(POLL)
        with _at(server.host):
            for name, (role, subjects) in ROLES.items():
                secret, digest = tokens.new_token()
                self.secrets[name] = secret
                token = Token(new_id(), name, role, subjects, digest, clock.wall())
                made = server.writer.run(lambda tx, token=token: tx.put_token(token))
                await made
            for path, body in _POOLS:
                answer = await server.call("POST", path, self.secrets["admin"], body)
                assert answer.status == 201, answer


_POOLS: list[tuple[str, Any]] = [
    ("/api/v1/pools", {"name": "farm", "nodes": {"zone": "a"}, "settings": {"node_lease": 20}}),
    ("/api/v1/pools", {"name": "counted", "capacity": {"gpu": CAPACITY}}),
    *[
        (
            "/api/v1/policies",
            {"pool": pool, "component": team, "component_type": "team", **more},
        )
        for pool in ("farm", "counted")
        for team, more in (("red", {}), ("blue", {"priority": 5}))
    ],
]


@contextmanager
def _at(host: Host) -> Iterator[None]:
    before = HERE.set(host)
    try:
        yield
    finally:
        HERE.reset(before)

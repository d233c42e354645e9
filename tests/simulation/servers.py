"""One server: the real app, writer and store, which may die between any two steps."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import orjson

from cede.server.api.app import create_app
from cede.server.config import Config
from cede.server.writer import BATCH_MAX, Writer
from cede.store import Store
from cede.store.errors import Deposed, DiskFull
from tests.simulation.answers import Answer, Away
from tests.simulation.databases import Disk
from tests.simulation.hosts import HERE, Host
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

# Of nodes, in milliseconds, in one run or another. One that speaks often can hold a lease of a
# leader without its term for seconds longer than one that was silent just then.
HEARTBEATS = (500, 2_000)


class Died(BaseException):
    """The server's process ended here."""


class Stepped:
    """A coroutine with a look before each of its steps."""

    def __init__(self, work: Coroutine[Any, Any, Any], look: Any) -> None:
        self._work = work
        self._look = look

    def __await__(self) -> Generator[Any, Any, Any]:
        value: Any = None
        error: BaseException | None = None
        while True:
            self._look()
            try:
                waits = self._work.throw(error) if error else self._work.send(value)
            except StopIteration as end:
                return end.value
            value = error = None
            try:
                value = yield waits
            except BaseException as thrown:
                error = thrown


class Server:
    """A server from its start to its death; who starts again is another."""

    def __init__(
        self,
        world: World,
        host: Host,
        store: Store,
        disk: Disk,
        cluster: Cluster,
    ) -> None:
        self._world = world
        self.host = host
        self.store = store
        self._cluster = cluster
        self.alive = True
        self.thawed = asyncio.Event()
        self.thawed.set()
        self.die_in: int | None = None  # steps until it dies
        self.torn = False  # whether the power goes in its next commit
        self.full: DiskFull | None = None  # while its disk is full
        self._disk = disk
        self._before: dict[str, bytes] = {}
        self._wrote = False
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in order: the same seed, the same run
        self._work = asyncio.Event()
        heartbeat = HEARTBEATS[world.seed // 2 % 2]
        config = Config(
            data=disk.folder, database="sqlite:///unused", heartbeat=heartbeat, agent=False
        )
        store.at_point = self._at_point
        self.writer = Writer(store, store.load(), on_fatal=lambda error: None)
        self._watch_queue()
        self.writer._renew(self.writer.now())
        self.app = create_app(store, self.writer, config)
        self._start(self._write())

    # What others do to it

    async def call(
        self, method: str, path: str, token: str, body: Any = None, key: str = ""
    ) -> Answer:
        """One HTTP call, as it arrives here."""
        await self.thawed.wait()
        if not self.alive:
            raise Away(f"{self.host.name} is not there")
        done = self._world.loop.create_future()

        async def serve() -> None:
            found = await Stepped(self._asgi(method, path, token, body, key), self._step)
            await self.thawed.wait()  # what is frozen says nothing
            if not done.done():
                done.set_result(found)

        task = self._start(serve())
        task.add_done_callback(lambda _: done.done() or done.cancel())
        try:
            return await done
        except asyncio.CancelledError:
            if self.alive:
                raise
            raise Away(f"{self.host.name} died") from None

    def die(self) -> None:
        if not self.alive:
            return
        self._world.note("dies", self.host.name)
        self.alive = False
        self.thawed.set()
        for task in list(self._tasks):
            task.cancel()
        with contextlib.suppress(Exception):
            self.store.close()

    # Inside

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        context = copy_context()
        context.run(HERE.set, self.host)
        task = self._world.loop.create_task(self._guarded(work), context=context)
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._tasks.pop(task, None))
        return task

    async def _guarded(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except Died:
            self.die()
        except Exception as error:
            if self.alive:
                self._world.account.broken(f"{self.host.name} failed: {error!r}")
                raise

    def _step(self) -> None:
        if self.die_in is not None:
            self.die_in -= 1
            if self.die_in < 0:
                raise Died
        if not self.alive:
            raise Died

    def _at_point(self, point: str) -> None:
        self._world.note("at", self.host.name, point)
        self._wrote |= point == "after_commit"
        if point == "before_commit" and self.full is not None:
            raise self.full
        if self.torn and point == "before_commit":
            self._before = self._disk.image()
        elif self.torn and point == "after_commit":
            after = self._disk.image()
            self.die()
            self._disk.put(self._disk.torn(self._before, after))
            raise Died
        self._step()

    def _watch_queue(self) -> None:
        queue, put = self.writer._queue, self.writer._queue.put

        def watched(job: Any) -> None:
            put(job)
            self._work.set()

        queue.put = watched  # type: ignore[method-assign]

    async def _write(self) -> None:
        """The writer's thread, turn by turn."""
        writer, world = self.writer, self._world
        while self.alive:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._work.wait(), writer._patience())
            # Whoever comes meanwhile is in the same transaction.
            await asyncio.sleep(world.dice.expovariate(1 / 0.005))
            await self.thawed.wait()
            if not await self._cluster.database_answers(self.host):
                raise Died
            self._step()
            self._work.clear()
            world.note("turn", self.host.name, writer.index)
            try:
                writer._turn(writer._queue.take(BATCH_MAX, 0))
            except Deposed:
                raise Died from None
            if len(writer._queue):
                self._work.set()
            if self._wrote:
                self._wrote = False
                self._cluster.committed(self)

    async def _asgi(self, method: str, path: str, token: str, body: Any, key: str) -> Answer:
        data = b"" if body is None else orjson.dumps(body)
        headers = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer " + token.encode())]
        if body is not None:
            headers += [(b"content-type", b"application/json")]
            headers += [(b"content-length", str(len(data)).encode())]
        if key:
            headers.append((b"idempotency-key", key.encode()))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path.partition("?")[0],
            "raw_path": path.partition("?")[0].encode(),
            "query_string": path.partition("?")[2].encode(),
            "root_path": "",
            "scheme": "http",
            "headers": headers,
            "client": ("10.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        status, pieces = 0, []
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await asyncio.get_running_loop().create_future()  # it does not hang up
            sent = True
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                pieces.append(message.get("body", b""))

        await self.app(scope, receive, send)
        text = b"".join(pieces)
        return Answer(status, orjson.loads(text) if text else None)

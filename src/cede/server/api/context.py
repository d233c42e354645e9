"""The objects that every handler works with: one `Context` for the app, one `Call` for each
request."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from time import thread_time
from typing import Annotated, Any, TypeVar

import orjson
from anyio import CapacityLimiter, to_thread
from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from cede.engine.state.state import State
from cede.model import bounds
from cede.server.api.auth import Authenticator, Caller
from cede.server.api.costly import Costly
from cede.server.api.encoded import Encoded
from cede.server.api.feed import Feed
from cede.server.api.limits import METER, Gate, Limiter
from cede.server.api.metrics import Metrics
from cede.server.api.problem import Problem
from cede.server.api.pulse import Pulse
from cede.server.api.relay import Relay
from cede.server.api.shared import Shared
from cede.server.config import Config
from cede.server.forked import Read
from cede.server.links import Links
from cede.server.memory import Trimmer
from cede.server.writer import Tx, Writer
from cede.store import Idempotency, Store

T = TypeVar("T")

_KEY = re.compile(rf"[!-~]{{1,{bounds.IDEMPOTENCY_KEY_LENGTH_MAX}}}")
# Pools are never renamed, so their names are cached; beyond this many the cache is dropped.
_NAMES_MAX = 10_000
READERS_MAX = 2
_JSON = "application/json"
# The scope's key of a handler's call.
CALL_KEY = "cede.call"


@dataclass(slots=True)
class Context:
    """The parts of the server that handlers reach."""

    store: Store
    writer: Writer
    config: Config
    auth: Authenticator
    limiter: Limiter
    metrics: Metrics
    pulse: Pulse
    relay: Relay
    monotonic: Callable[[], float]
    costly: Costly
    shared: Shared
    links: Links
    feed: Feed = field(default_factory=Feed)
    streams: int = 0  # open event streams
    # By a node's name, the session of the agent that was last refused as its second.
    refused: dict[str, str] = field(default_factory=dict)
    plans: int = 0  # plans being made or waiting for their turn
    planning: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Threads that read beside the loop and the writer; more would slow down both.
    reading: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(READERS_MAX))
    # Reports that read a whole history are made one at a time, beside those who read little.
    reporting: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))
    # Large bodies are parsed one at a time.
    parsing: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))
    gate: Gate = field(default_factory=Gate)
    # Bulk calls: each keeps the loop busy for as long as hundreds of others. Two, so that one is
    # read while the other is decided.
    bulk_gate: Gate = field(default_factory=lambda: Gate(most=2))
    trimmer: Trimmer = field(init=False)
    listing: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while a long list is made
    encoded: Encoded = field(default_factory=Encoded)
    _names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trimmer = Trimmer(self.store.give_back_memory)

    async def read(self, function: Callable[..., T], *args: Any, **filters: Any) -> T:
        """Read from the database, off the event loop."""
        return await self._off_the_loop(self.reading, function, *args, **filters)

    async def report(self, function: Callable[..., T], *args: Any, **filters: Any) -> T:
        """Read very much from the database, off the event loop."""
        return await self._off_the_loop(self.reporting, function, *args, **filters)

    async def _off_the_loop(
        self, limiter: CapacityLimiter, function: Callable[..., T], *args: Any, **filters: Any
    ) -> T:
        meter = METER.get()

        def measured() -> T:
            began = thread_time()
            try:
                return function(*args, **filters)
            finally:
                meter.add(thread_time() - began)

        return await to_thread.run_sync(measured, limiter=limiter)

    async def execute(
        self,
        command: Callable[[Tx], T],
        *,
        idempotency: Idempotency | None = None,
        answer: Callable[[T, Tx], Any] | None = None,
        weight: int = 1,
        lasting: bool = True,
    ) -> Any:
        """Execute a command and return its answer once it is committed; see `Writer.execute` and
        `Writer.run`."""
        future = self.writer.run(
            command,
            idempotency=idempotency,
            answer=answer,
            urgent=METER.get().urgent,
            weight=weight,
            lasting=lasting,
        )
        return await self.while_leading(future)

    async def query(self, read: Callable[[State, int], T]) -> T:
        """Read the committed state, between two commits."""
        return await self.while_leading(self.writer.ask(read))

    async def while_leading(self, future: asyncio.Future[T]) -> T:
        """Await the writer's result, or raise once the term ends: a writer whose database does
        not answer may hang for long. The caller tries again, and a key shows whether the command
        was committed.
        """
        leadership = self.writer.leadership
        try:
            while not future.done() and (left := leadership.seconds_left) is not None:
                leadership.require()
                await asyncio.wait([future], timeout=left)
            return await future
        finally:
            # The result is not awaited any more; the writer finishes what it has begun all the
            # same.
            future.cancel()

    def node_name(self, node_id: str) -> str:
        posted = self.writer.order_board.posted.get(node_id)
        return node_id if posted is None else posted.node.name

    async def pool_names(self, ids: Iterable[str | None]) -> dict[str, str]:
        """Return the names of these pools; one that is gone has none."""
        missing = {each for each in ids if each is not None and each not in self._names}
        if missing:
            found = await self.read(self.store.pool_names, missing)
            if len(self._names) + len(found) > _NAMES_MAX:
                self._names.clear()
            self._names.update(found)
        return self._names


@dataclass(slots=True)
class Call:
    """One request on its way through a handler."""

    context: Context
    found_caller: Caller | None
    request: Request

    @property
    def caller(self) -> Caller:
        assert self.found_caller is not None, "a handler of an open route asked who is calling"
        return self.found_caller

    async def costly(
        self,
        kind: str,
        scope: tuple[Any, ...],
        read: Read,
        light: Callable[[State], bool] | None = None,
    ) -> bytes:
        """Run a read that may take long; see `Costly.ask`. Callers that may see the same share
        one scope."""
        asked = asyncio.ensure_future(self.context.costly.ask(kind, scope, read, light))
        return await self.context.while_leading(asked)

    async def shared(self, make: Callable[[], Awaitable[Any]]) -> Response:
        """Return the answer to this very call, one for all callers that may see the same; see
        `Shared`. `make` returns it as a value, or as the bytes of its JSON.
        """

        async def body() -> bytes:
            made = await make()
            return made if isinstance(made, bytes) else orjson.dumps(made)

        scope = self.request.scope
        key = (scope["path"], scope["query_string"], self.caller.bound)
        return Response(await self.context.shared.ask(key, body), media_type=_JSON)

    async def idempotency(self) -> Idempotency | None:
        """Return what makes a repetition of this call recognisable (S19); None without a key."""
        given = self.request.headers.getlist("idempotency-key")
        if not given:
            return None
        if len(given) > 1 or not _KEY.fullmatch(given[0]):
            most = bounds.IDEMPOTENCY_KEY_LENGTH_MAX
            detail = f"Idempotency-Key: must be one of 1 to {most} visible ASCII characters"
            raise Problem(422, "invalid", detail, field="Idempotency-Key")
        body = await self.request.body()
        return Idempotency(
            key=given[0],
            route=f"{self.request.method} {self.request.url.path}",
            token_id=self.caller.token.id,
            body_hash=hashlib.sha256(body).hexdigest(),
        )


async def this_call(request: Request) -> Call:
    call: Call = request.scope[CALL_KEY]
    return call


ThisCall = Annotated[Call, Depends(this_call)]


def answer(body: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type=_JSON)


NO_CONTENT = 204


def nothing() -> Response:
    return Response(status_code=NO_CONTENT)

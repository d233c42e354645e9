"""`AsyncClient`: every method of `Client`, to be awaited.

Each method calls the one of `client.py` in a thread of its own while the event loop goes on, so
there is one way to send, to retry, to trust a certificate and to read an answer. A thread costs
less than a call, and a call that the server holds back delays no other. A call whose task is
cancelled may have been carried out all the same.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from cede.client import client as plain
from cede.client.http import Http, Json
from cede.client.interruptions import Interrupted
from cede.model import bounds

P = ParamSpec("P")
R = TypeVar("R")
_OVER = object()


class _Twin(Protocol):
    """An object whose methods run in threads on a plain twin."""

    _plain: Any
    _threads: Threads


class Threads:
    """Threads for the calls of one client."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(bounds.CALLS_AT_ONCE_MAX)

    async def call(self, work: Callable[[], R]) -> R:
        """Return what `work` returns, or raise what it raises, while the event loop goes on."""
        async with self._places:
            return await in_thread(work)


def in_thread(work: Callable[[], R]) -> asyncio.Future[R]:
    """Run `work` in a daemon thread, not in a pool of threads: no call delays the program's end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return  # the waiting task was cancelled
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def run() -> None:
        value, error = None, None
        try:
            value = work()
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed, and no task waits
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name="cede-call", daemon=True).start()
    return future


def awaited(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[_Twin, P], Coroutine[Any, Any, R]]:
    """Make a coroutine method of a method of the plain client."""

    @functools.wraps(method)
    async def call(self: _Twin, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._threads.call(functools.partial(method, self._plain, *args, **kwargs))

    return call


def iterated(
    method: Callable[Concatenate[Any, P], Iterator[R]],
) -> Callable[Concatenate[_Twin, P], AsyncIterator[R]]:
    """Make an asynchronous iterator of a method of the plain client that returns an iterator."""

    @functools.wraps(method)
    async def call(self: _Twin, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        pieces = method(self._plain, *args, **kwargs)
        while (piece := await self._threads.call(lambda: next(pieces, _OVER))) is not _OVER:
            yield piece  # type: ignore[misc]

    return call


class _Group:
    def __init__(self, group: Any, threads: Threads) -> None:
        self._plain = group
        self._threads = threads


class AsyncPools(_Group):
    list = iterated(plain.Pools.list)
    get = awaited(plain.Pools.get)
    create = awaited(plain.Pools.create)
    update = awaited(plain.Pools.update)
    enable = awaited(plain.Pools.enable)
    delete = awaited(plain.Pools.delete)
    requests = iterated(plain.Pools.requests)
    shares = awaited(plain.Pools.shares)
    queue = awaited(plain.Pools.queue)


class AsyncPolicies(_Group):
    list = iterated(plain.Policies.list)
    get = awaited(plain.Policies.get)
    attach = awaited(plain.Policies.attach)
    update = awaited(plain.Policies.update)
    detach = awaited(plain.Policies.detach)
    of = awaited(plain.Policies.of)


class AsyncTenants(_Group):
    list = iterated(plain.Tenants.list)
    get = awaited(plain.Tenants.get)
    create = awaited(plain.Tenants.create)
    update = awaited(plain.Tenants.update)
    delete = awaited(plain.Tenants.delete)


class AsyncRequests(_Group):
    list = iterated(plain.Requests.list)
    get = awaited(plain.Requests.get)
    create = awaited(plain.Requests.create)
    create_many = awaited(plain.Requests.create_many)
    renew = awaited(plain.Requests.renew)
    say = awaited(plain.Requests.say)
    release = awaited(plain.Requests.release)
    hand_over = awaited(plain.Requests.hand_over)
    set_limit = awaited(plain.Requests.set_limit)
    cancel = awaited(plain.Requests.cancel)
    delete = awaited(plain.Requests.delete)
    why = awaited(plain.Requests.why)
    logs = iterated(plain.Requests.logs)


class AsyncNodes(_Group):
    list = iterated(plain.Nodes.list)
    get = awaited(plain.Nodes.get)
    drain = awaited(plain.Nodes.drain)
    undrain = awaited(plain.Nodes.undrain)
    disable = awaited(plain.Nodes.disable)
    enable = awaited(plain.Nodes.enable)
    claim = awaited(plain.Nodes.claim)
    unclaim = awaited(plain.Nodes.unclaim)
    delete = awaited(plain.Nodes.delete)
    try_delete = awaited(plain.Nodes.try_delete)


class AsyncTokens(_Group):
    list = iterated(plain.Tokens.list)
    create = awaited(plain.Tokens.create)
    revoke = awaited(plain.Tokens.revoke)


class AsyncAudit(_Group):
    list = iterated(plain.Audit.list)
    verify = awaited(plain.Audit.verify)


class AsyncClient:
    """One connection to one server, for the tasks of one event loop. Close it, or use it in an
    `async with`."""

    def __init__(
        self, server: str | None = None, token: str | None = None, *, http: Http | None = None
    ) -> None:
        self._plain = plain.Client(server, token, http=http)
        self._threads = Threads()
        self.pools = AsyncPools(self._plain.pools, self._threads)
        self.policies = AsyncPolicies(self._plain.policies, self._threads)
        self.requests = AsyncRequests(self._plain.requests, self._threads)
        self.nodes = AsyncNodes(self._plain.nodes, self._threads)
        self.tenants = AsyncTenants(self._plain.tenants, self._threads)
        self.tokens = AsyncTokens(self._plain.tokens, self._threads)
        self.audit = AsyncAudit(self._plain.audit, self._threads)

    @property
    def server(self) -> str:
        return self._plain.server

    def close(self) -> None:
        """Close the connection; calls that are under way end with `ServerUnreachable`."""
        self._plain.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    whoami = awaited(plain.Client.whoami)
    page_link = awaited(plain.Client.page_link)
    snapshot = awaited(plain.Client.snapshot)
    status = awaited(plain.Client.status)
    plan = awaited(plain.Client.plan)
    configuration = awaited(plain.Client.configuration)
    apply = awaited(plain.Client.apply)
    usage = awaited(plain.Client.usage)
    history = iterated(plain.Client.history)
    pool_history = awaited(plain.Client.pool_history)
    events = iterated(plain.Client.events)

    def allocation(
        self,
        *,
        on_wait: Callable[[Json], None] | None = None,
        on_preempting: Callable[[Json], None] | None = None,
        **demand: Any,
    ) -> AsyncAllocation:
        """Units to hold for the length of an `async with` block; as `Client.allocation`."""
        return AsyncAllocation(self._plain, on_wait, on_preempting, demand)


class AsyncAllocation:
    """An `Allocation` for `async with`. `preempted` is an event to be awaited; callbacks are called
    in the event loop."""

    def __init__(
        self,
        client: plain.Client,
        on_wait: Callable[[Json], None] | None,
        on_preempting: Callable[[Json], None] | None,
        demand: Json,
    ) -> None:
        self.preempted = asyncio.Event()
        self._on_preempting = on_preempting
        self._loop: asyncio.AbstractEventLoop | None = None
        self._held = client.allocation(
            on_wait=None if on_wait is None else functools.partial(self._in_loop, on_wait),
            on_preempting=functools.partial(self._in_loop, self._told),
            **demand,
        )

    @property
    def id(self) -> str:
        return self._held.id

    @property
    def request(self) -> Json:
        return self._held.request

    @property
    def pool(self) -> str | None:
        return self._held.pool

    @property
    def attempt(self) -> int:
        return self._held.attempt

    @property
    def should_stop(self) -> bool:
        return self._held.should_stop

    @property
    def ended(self) -> bool:
        return self._held.ended

    def finish(self) -> None:
        self._held.finish()

    async def __aenter__(self) -> AsyncAllocation:
        self._loop = asyncio.get_running_loop()
        self.preempted.clear()
        entering = in_thread(self._held.__enter__)
        try:
            await asyncio.shield(entering)
        except asyncio.CancelledError:
            self._held.give_up()
            with suppress(Interrupted):
                await entering
                await self._leave(None, None, None)  # it was granted at the last moment
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.shield(self._leave(kind, error, trace))

    def _leave(self, *how: Any) -> Awaitable[None]:
        return in_thread(functools.partial(self._held.__exit__, *how))

    def _told(self, request: Json) -> None:
        self.preempted.set()
        if self._on_preempting is not None:
            self._on_preempting(request)

    def _in_loop(self, callback: Callable[[Json], None], value: Json) -> None:
        assert self._loop is not None, "entered"
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback, value)

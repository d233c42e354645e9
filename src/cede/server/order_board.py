"""Orders for agents and heartbeats from them, held between writer and HTTP so that neither waits.

The writer posts each node's orders, after the commit that decided them; agents' heartbeats are
noted, and the writer collects them before its next pass. So a heartbeat without news costs neither
the writer nor the database anything.

The writer's thread calls `collect` and `publish`, the event loop everything else. Between the two
there are only single operations on a dict and a deque, which Python makes whole.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

from cede.engine.lifecycle.orders import Load, Order, load_of
from cede.engine.state.changes import Changes
from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.node import Node


@dataclass(slots=True)
class Posted:
    """The load of a node, as of the instant `at`. Its orders, and `text`, which is their JSON, are
    made at the first use: nobody asks for those of most commits.
    """

    node: Node
    version: int
    load: Load
    at: int
    text: bytes | None = None
    _orders: tuple[Order, ...] | None = None

    @property
    def orders(self) -> tuple[Order, ...]:
        if self._orders is None:
            self._orders = tuple(self.load.orders())
        return self._orders


@dataclass(slots=True)
class Bridged:
    """The nodes of one bridge; `version` grows with every change for any of them."""

    nodes: dict[str, None] = field(default_factory=dict)
    version: int = 1


class OrderBoard:
    def __init__(self, state: State, now: int, former_term: int = 0) -> None:
        self.posted: dict[str, Posted] = {}
        self.bridges: dict[str, Bridged] = {}
        self.closed = False
        self._since = now  # a server that starts counts every node as heard of
        self._heard: dict[str, int] = {}
        self._beats: deque[tuple[str, int]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        # By id; with each waiting call, the statuses of a request that are no news to it.
        self._waiting: dict[str, dict[asyncio.Future[None], Container[RequestStatus]]] = {}
        for node_id in state.nodes:
            # S14: the server before this one may answer until its term is over; leases count from
            # then.
            state.beats[node_id] = now + former_term
            self._post(state, node_id)

    # The writer ---------------------------------------------------------------------------------

    def collect(self, state: State) -> None:
        """Give the engine the heartbeats that came since the last call."""
        while self._beats:
            node_id, at = self._beats.popleft()
            if node_id in state.nodes:
                state.beats[node_id] = max(at, state.beats.get(node_id, 0))

    def publish(self, state: State, changes: Changes) -> None:
        """Post the orders that a commit changed, and wake the calls that wait for them."""
        moved: list[str] = []
        if state.nodes or changes.nodes.deleted:
            touched = dict.fromkeys(_nodes_of(state, changes))
            moved = [node_id for node_id in touched if self._post(state, node_id)]
        if self._waiting:
            told = (each for each in _told(changes) if each[0] in self._waiting)
            self._wake_soon([*((node_id, None) for node_id in moved), *told])

    def _post(self, state: State, node_id: str) -> bool:
        """Post the orders of a node; return whether they have changed."""
        node, known = state.nodes.get(node_id), self.posted.get(node_id)
        if known is not None and known.node.bridge and (node is None or not node.bridge):
            bridged = self.bridges[known.node.bridge]
            bridged.nodes = {each: None for each in bridged.nodes if each != node_id}
            bridged.version += 1
        if node is None:
            self._heard.pop(node_id, None)
            return self.posted.pop(node_id, None) is not None
        version = state.order_versions[node_id]
        if known is not None and known.version == version:
            known.node = node
            return False
        self.posted[node_id] = Posted(node, version, load_of(state, node_id), state.now)
        if node.bridge:
            # Posted first, counted then: a call that sees the new count sees its orders.
            bridged = self.bridges.setdefault(node.bridge, Bridged())
            if node_id not in bridged.nodes:
                bridged.nodes = {**bridged.nodes, node_id: None}
            bridged.version += 1
        return True

    # The event loop -----------------------------------------------------------------------------

    def beat(self, node_id: str, now: int) -> None:
        self._heard[node_id] = now
        self._beats.append((node_id, now))

    def heard_at(self, node_id: str) -> int:
        return self._heard.get(node_id, self._since)

    async def wait_for_bridge(self, name: str, version: int, seconds: float) -> None:
        """Wait until there are newer orders for one of the bridge's nodes, at most so many
        seconds."""
        with self.standing(_bridge_key(name)) as waiter:
            bridged = self.bridges.get(name)
            if bridged is not None and bridged.version == version and not self.closed:
                await asyncio.wait([waiter], timeout=seconds)

    async def wait(self, known: Posted, seconds: float) -> None:
        """Wait until there are newer orders than these for the node, at most so many seconds."""
        node_id = known.node.id
        with self.standing(node_id) as waiter:
            # Posted first and woken then: orders posted before this call waited are seen here.
            if self.posted.get(node_id) is known and not self.closed:
                await asyncio.wait([waiter], timeout=seconds)

    @contextlib.contextmanager
    def standing(
        self, id: str, *, but: Container[RequestStatus] = ()
    ) -> Iterator[asyncio.Future[None]]:
        """Yield a future that is done as soon as a commit has news for this node or this request.

        A request whose new status is in `but` is no news.
        """
        self._loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = self._loop.create_future()
        waiting = self._waiting.setdefault(id, {})
        waiting[waiter] = but
        try:
            yield waiter
        finally:
            waiting.pop(waiter, None)
            if not waiting:
                self._waiting.pop(id, None)

    def wake(self, ids: Iterable[str]) -> None:
        """Let these waiting calls be answered now; on the event loop."""
        self._wake((id, None) for id in ids)

    def _wake(self, told: Iterable[tuple[str, RequestStatus | None]]) -> None:
        for id, status in told:
            posted = self.posted.get(id)
            if posted is not None and posted.node.bridge:
                id = _bridge_key(posted.node.bridge)
            for waiter, but in self._waiting.get(id, {}).items():
                if not waiter.done() and (status is None or status not in but):
                    waiter.set_result(None)

    def close(self) -> None:
        """Answer all waiting calls: the server is about to stop. Safe from any thread."""
        self.closed = True
        self._wake_soon([(id, None) for id in list(self._waiting)])

    def _wake_soon(self, told: list[tuple[str, RequestStatus | None]]) -> None:
        if told and self._loop is not None and self._waiting:
            with contextlib.suppress(RuntimeError):  # the loop is gone: so are its calls
                self._loop.call_soon_threadsafe(self._wake, told)


def _bridge_key(name: str) -> str:
    return f"bridge:{name}"


def _told(changes: Changes) -> Iterator[tuple[str, RequestStatus | None]]:
    """Yield the requests that have news for their clients: granted, save, go on, stop, over."""
    yield from ((request.id, request.status) for request in changes.requests.updated)
    for allocation in changes.allocations.updated:
        if allocation.state is AllocationState.STOPPING:
            yield allocation.request_id, None


def _nodes_of(state: State, changes: Changes) -> Iterator[str]:
    """Yield the nodes whose orders a commit may have changed."""
    for rows in (changes.nodes.inserted, changes.nodes.updated):
        yield from (node.id for node in rows)
    yield from changes.nodes.deleted
    for allocations in (changes.allocations.inserted, changes.allocations.updated):
        for allocation in allocations:
            yield from _members_of(allocation)
    for request in changes.requests.updated:
        yield from _members_of(state.allocation_of(request.id))


def _members_of(allocation: Allocation | None) -> Iterator[str]:
    if allocation is not None:
        yield from (member.node_id for member in allocation.members)

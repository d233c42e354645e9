"""Many entities at once. The ledger of a pool is opened once, after the last of its policies; its
nodes are listed once, after the last of the allocations on them; waiters that are alike join their
queues together, after the last of the requests.

A change of one policy is rare on a server, and opens its pool's ledger again. Reading a thousand of
them from a store or a snapshot, or changing as many at once, would open it a thousand times. One
more allocation counts all holdings on its nodes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.queue import Stand
from cede.engine.rights.standing import Age
from cede.engine.state.entities import Entity
from cede.model.allocation import Allocation
from cede.model.node import Node
from cede.model.policy import Policy
from cede.model.request import Request

if TYPE_CHECKING:
    from cede.engine.state.state import State


@contextmanager
def policies_at_once(state: State) -> Iterator[None]:
    """A context in which only policies may change: queues are empty, and ledgers are not valid."""
    had_place = state.take_out()
    unopened: dict[str, None] = {}
    state.unopened = unopened
    try:
        yield
    finally:
        state.unopened = None
        for pool_id in unopened:
            state.open_ledger(pool_id)
        state.put_back(had_place)


@contextmanager
def holding_many(state: State) -> Iterator[None]:
    """A context in which only allocations are added: each node is listed once, at its end."""
    with ExitStack() as stack:
        for inventory in state.inventories.values():
            stack.enter_context(inventory.holding_many())
        yield


_AT_ONCE: dict[type[Entity], Callable[[State], AbstractContextManager[None]]] = {
    Node: policies_at_once,
    Policy: policies_at_once,
    Allocation: holding_many,
}


def at_once(state: State, kind: type[Entity]) -> AbstractContextManager[None]:
    """A context in which only entities of one kind are added."""
    return _AT_ONCE[kind](state) if kind in _AT_ONCE else nullcontext()


@dataclass(slots=True)
class Crowd:
    """Requests that differ in age only for every rule. The queues of waiters are found once, and
    they join these together; holders have none.
    """

    first: Request
    waits: bool
    places: tuple[Policy, ...]
    stands: list[tuple[PoolLedger, Stand]]
    ages: list[Age] = field(default_factory=list)  # of the waiters

    def queue(self) -> None:
        for ledger, (key, demand) in self.stands:
            ledger.wait_together(key, self.ages, demand)

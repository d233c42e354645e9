"""Many entities at once. The ledger of a pool is opened once, behind the last of its policies; its
nodes are listed once, behind the last of the allocations on them.

A change of one policy is rare on a server, and opens its pool's ledger again. Reading a thousand of
them from a store or a snapshot, or changing as many at once, would open it a thousand times. One
more allocation counts all holdings on its nodes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import groupby
from typing import TYPE_CHECKING

from cede.engine.state.entities import Entity
from cede.model.allocation import Allocation
from cede.model.policy import Policy

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
    Policy: policies_at_once,
    Allocation: holding_many,
}


def in_batches(state: State, entities: Iterable[Entity]) -> Iterator[Entity]:
    """The same; policies, and allocations, that follow each other at once."""
    for kind, some in groupby(entities, type):
        with _AT_ONCE[kind](state) if kind in _AT_ONCE else nullcontext():
            yield from some

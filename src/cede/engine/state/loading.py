"""Many entities at once. The ledger of a pool is opened once, behind the last of its policies; its
nodes are listed once, behind the last of the allocations on them.

One policy more is rare on a server, and opens its pool's ledger anew. Whoever reads a thousand of
them, from a store or a snapshot, or changes as many in one go, would open it a thousand times. One
allocation more counts all that is on its nodes again.
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
    """Meanwhile only policies may change: nobody waits, and no ledger is right."""
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
    """Meanwhile only allocations come: nodes are listed once for all that are on them."""
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

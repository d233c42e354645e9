"""Many policies at once: the ledger of a pool is opened once, behind the last of its policies.

One policy more is rare on a server, and opens its pool's ledger anew. Whoever reads a thousand of
them, from a store or a snapshot, or changes as many in one go, would open it a thousand times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import groupby
from typing import TYPE_CHECKING

from cede.engine.state.entities import Entity
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


def in_batches(state: State, entities: Iterable[Entity]) -> Iterator[Entity]:
    """The same, policies that follow each other at once."""
    for are_policies, some in groupby(entities, lambda each: isinstance(each, Policy)):
        with policies_at_once(state) if are_policies else nullcontext():
            yield from some

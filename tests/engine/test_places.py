"""The list of a queue is made as far as it is read, and is the one order; whoever explains many
waiters at once tells each what it would be told alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cede.engine.explain.places import in_order, length, order_of
from cede.engine.explain.why import waiting_reason
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.queue import Queue, QueueKey
from cede.engine.rights.standing import Age
from cede.engine.state.state import State
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.settings import Settings
from cede.model.subject import Subject
from tests.worlds.draw import KINDS
from tests.worlds.walk import Walk, walk

WALK = st.builds(walk, st.sampled_from(sorted(KINDS)), st.integers(0, 999))
STEPS = st.lists(st.integers(0, 99), max_size=12)


def queued(state: State, pool_id: str) -> list[Request]:
    queues = state.ledgers[pool_id].queues.values()
    return [state.requests[each] for queue in queues for each in queue]


@settings(max_examples=60)
@given(WALK, STEPS)
def test_the_list_is_the_one_order(walk: Walk, steps: list[int]) -> None:
    walk.go(steps)
    state = walk.state
    for pool_id, ledger in state.ledgers.items():
        orders = []
        for request in queued(state, pool_id):
            [policy] = [each for each in state.places(request.id) if each.pool_id == pool_id]
            demand = ledger.pool.metered(request.amounts)
            orders.append(order_of(ledger, request, policy.id, demand))
        assert [found for found, _ in in_order(ledger)] == sorted(orders)
        assert length(ledger) == len(orders)
        for found, at in in_order(ledger):
            assert found[3][2] in ledger.queues[at]


@pytest.mark.parametrize("reserved", [0, 8])
def test_the_first_places_are_found_without_the_others(reserved: int) -> None:
    looked_at = 0

    class Counting(Queue):
        def ages(self) -> Iterator[Age]:
            nonlocal looked_at
            for age in super().ages():
                looked_at += 1
                yield age

    pool = Pool("p", "p", {"gpu": 8}, "quota", Settings())
    policies = {
        "red": Policy("red", "p", Subject("team", "red")),
        "blue": Policy("blue", "p", Subject("team", "blue"), reserved={"gpu": reserved}),
    }
    ledger = PoolLedger(pool, policies)
    many = ledger.queues[QueueKey("red")] = Counting()
    for number in range(1_000):
        many.add((number, number, f"r{number:03}"), {"gpu": 1})
    first = [found[3][2] for found, _ in islice(in_order(ledger), 3)]
    assert first == ["r000", "r001", "r002"]
    assert looked_at <= 4


@settings(max_examples=60)
@given(WALK, STEPS)
def test_reasons_of_many_are_those_of_each(walk: Walk, steps: list[int]) -> None:
    walk.go(steps)
    state = walk.state
    known: dict[tuple[object, ...], object] = {}
    together = [waiting_reason(state, each, known) for each in list(state.waiting())]
    alone = []
    for each in list(state.waiting()):
        for ledger in state.ledgers.values():
            ledger.holders_alike.clear()
        alone.append(waiting_reason(state, each))
    assert together == alone

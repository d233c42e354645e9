"""Nothing that only asks changes anything: no entity, clock, timer or undo log (part of law 8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cede.engine.audit import audit
from cede.engine.explain import shares
from cede.engine.explain import why as explaining
from cede.engine.explain.places import in_order
from cede.engine.queue.forecast import earliest_start
from cede.engine.state.state import State
from cede.engine.state.trial import as_of
from cede.sim import plan
from cede.snapshot.writer import dump
from tests.engine.traces import trace
from tests.worlds.draw import KINDS
from tests.worlds.walk import Walk, walk

WALK = st.builds(walk, st.sampled_from(sorted(KINDS)), st.integers(0, 999))
STEPS = st.lists(st.integers(0, 99), max_size=12)


def why(state: State, later: int) -> None:
    for request in list(state.requests.values()):
        if not request.ended:
            explaining.why(state, request.id, state.now + later)


def forecast(state: State, later: int) -> None:
    for request in list(state.waiting()):
        for policy in state.places(request.id):
            earliest_start(state, state.ledgers[policy.pool_id], request)


def shares_of_pools(state: State, later: int) -> None:
    for pool_id in list(state.pools):
        shares.view_of(state, pool_id, state.now + later)
        shares.view_of(state, pool_id, state.now + later, requests=False)


def queues(state: State, later: int) -> None:
    with as_of(state, state.now + later):
        for ledger in state.ledgers.values():
            for found, _ in in_order(ledger):
                explaining.waiting_reason(state, state.requests[found[3][2]])


def snapshot(state: State, later: int) -> None:
    dump(state, state.now + later)


def planned(state: State, later: int) -> None:
    plan.run(dump(state, state.now + later))


def audited(state: State, later: int) -> None:
    audit.check(state)


READS = (why, forecast, shares_of_pools, queues, snapshot, planned, audited)


def leaves_no_trace(read: Callable[[State, int], None], walk: Walk, steps: list[int]) -> None:
    walk.go(steps)
    before = trace(walk.state)
    read(walk.state, 2500)
    assert trace(walk.state) == before


@pytest.mark.parametrize("read", READS)
@settings(max_examples=40)
@given(WALK, STEPS)
def test_a_read_changes_nothing(
    read: Callable[[State, int], None], walk: Walk, steps: list[int]
) -> None:
    leaves_no_trace(read, walk, steps)


def moves_the_clock(state: State, now: int) -> None:
    state.now = now


def sets_a_timer(state: State, now: int) -> None:
    state.wake_by(next(iter(state.pools)), now)


def notes_something(state: State, now: int) -> None:
    state.over["nobody"] = {}
    del state.over["nobody"]


@pytest.mark.parametrize("write", [moves_the_clock, sets_a_timer, notes_something])
def test_a_read_that_writes_is_found(write: Callable[[State, int], None]) -> None:
    real = explaining._story

    def writes(state: State, *given: Any) -> Any:
        found = real(state, *given)
        write(state, state.now)
        return found

    class Restless:
        """As `as_of`, without putting the clock back."""

        def __init__(self, state: State, now: int) -> None:
            state.now = now

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    broken = patch.object(explaining, "_story", writes)
    if write is moves_the_clock:
        broken = patch.object(explaining, "as_of", Restless)
    with broken, pytest.raises(AssertionError):
        for seed in range(20):
            leaves_no_trace(why, walk("quota", seed), [0, 0, 1, 2])

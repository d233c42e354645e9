"""When something would fit, and answers that are kept: against asking anew, in small worlds."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from cede.engine.admin import edits
from cede.engine.decide import decide
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.lifecycle import commands
from cede.engine.nodes.homes import Homes, Use
from cede.engine.queue import forecast
from cede.engine.queue.ends import end_bound
from cede.engine.queue.forecast import HeadStart, Start, earliest_start, head_start
from cede.engine.queue.view import locate
from cede.engine.rights.standing import BORROWED, LOWEST
from cede.engine.state.state import State
from cede.engine.steps import grant as grants
from cede.model.allocation import Allocation
from cede.model.request import Request
from cede.model.subject import Subject
from tests.worlds.draw import KINDS, draw
from tests.worlds.steps import events, happen, settle

STEPS = 20


def walk(kind: str, number: int) -> Iterator[State]:
    """One way through a world, step by step."""
    world, dice = draw(KINDS[kind] + number), Random(number)
    state, arrived, lost = world.state(), 0, False
    settle(state)
    for _ in range(STEPS):
        possible = list(events(world, state, arrived, lost))
        if not possible:
            return
        what, who, _ = dice.choice(possible)
        happen(world, state, what, who)
        settle(state)
        arrived, lost = arrived + (what == "arrives"), lost or what == "is lost"
        yield state


def start_by_trying(state: State, ledger: PoolLedger, request: Request) -> Start | None:
    """One more end after the other, until there is a place."""
    policy = next(each for each in state.places(request.id) if each.pool_id == ledger.pool.id)
    key, own = ledger.queue_of(policy.id, request), (request.id,)
    held = {
        a.id: end_bound(state, a) for a in state.allocations.values() if a.id in ledger.holdings
    }
    ends = sorted((end, each) for each, end in held.items() if end is not None)
    for count in range(len(ends) + 1):
        gone = [each for _, each in ends[:count]]
        place = locate(state, ledger, key, BORROWED, LOWEST, promise=False, own=own, gone=gone)
        if place is not None:
            return Start(max(state.now, *(end for end, _ in ends[:count]), 0), place)
    return None


@pytest.mark.parametrize("kind", ["nodes", "classes"])
def test_the_earliest_start_is_after_the_fewest_ends_that_make_a_place(kind: str) -> None:
    later = 0
    for number in range(40):
        for state in walk(kind, number):
            for request in state.waiting():
                for policy in state.places(request.id):
                    ledger = state.ledgers[policy.pool_id]
                    start = earliest_start(state, ledger, request)
                    assert start == start_by_trying(state, ledger, request)
                    later += start is not None and start.at > state.now
    assert later > 20  # it was no idle question


def test_ends_are_put_in_order_once_for_all_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    state = State()
    team = Subject("team", "red")
    edits.create_pool(state, id="pool", name="pool", capacity={"gpu": 3})
    edits.attach_policy(state, id="red", pool_id="pool", subject=team)
    for number, walltime in enumerate((30_000, 10_000, 20_000, 1_000, 1_000)):
        commands.submit(
            state,
            commands.Submission(f"r{number}", team, {"gpu": 1}, walltime=walltime, lease=None),
            1_000 + number,
        )
    decide(state, 2_000)
    looked: list[str] = []

    def noted(state: State, allocation: Allocation) -> int | None:
        looked.append(allocation.request_id)
        return end_bound(state, allocation)

    monkeypatch.setattr(forecast, "end_bound", noted)
    ledger, waiters = state.ledgers["pool"], [state.requests[each] for each in ("r3", "r4")]
    assert [earliest_start(state, ledger, each) for each in waiters] == [Start(12_000)] * 2
    assert sorted(looked) == ["r0", "r1", "r2"]
    commands.release(state, "r1", 3_000)
    decide(state, 3_000)  # r3 has what was free
    state.drain()
    commands.submit(state, commands.Submission("r5", team, {"gpu": 1}, lease=None), 3_001)
    assert earliest_start(state, ledger, state.requests["r5"]) == Start(4_000)


def test_what_is_kept_while_a_pool_is_filled_is_what_would_be_answered_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again = {"start": 0, "used": 0}
    start, used = grants._Pool._start, Homes._used

    def judged_start(pool: Any, waiter: Request) -> HeadStart | None:
        kept = waiter.id in pool._starts
        found = start(pool, waiter)
        assert found == head_start(pool.state, pool.ledger, waiter)
        again["start"] += kept
        return found

    def judged_used(homes: Any, *asked: Any) -> Use:
        kept = asked in homes._uses
        found = used(homes, *asked)
        homes._uses.clear()
        anew = used(homes, *asked)
        assert (found.lent, found.idle) == (anew.lent, anew.idle)
        again["used"] += kept
        return found

    monkeypatch.setattr(grants._Pool, "_start", judged_start)
    monkeypatch.setattr(Homes, "_used", judged_used)
    for number in range(150):
        for _ in walk("classes", number):
            pass
    assert min(again.values()) > 5, again

"""What a pool is said to contain is what a count from the beginning finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cede.engine.explain.contents import Contents, contents
from cede.engine.state.state import State
from cede.model.amounts import add_to
from tests.engine.histories import HISTORY, Command, History, world


def counted(state: State) -> list[Contents]:
    found = []
    for pool in sorted(state.pools.values(), key=lambda each: each.name):
        occupied: dict[str, int] = {}
        earmarked: dict[str, int] = {}
        live = [each for each in state.allocations.values() if each.live]
        here = [each for each in live if each.pool_id == pool.id]
        for each in here:
            add_to(occupied, pool.metered(each.amounts))
        subjects = {each.subject for each in state.policies.values() if each.pool_id == pool.id}
        queued = 0
        for request in state.requests.values():
            if request.waiting and request.pool_id in (None, pool.id):
                queued += request.subject in subjects
            if request.earmark is not None and request.earmark.pool_id == pool.id:
                add_to(earmarked, pool.metered(request.amounts))
        found.append(Contents(pool, occupied, earmarked, queued, len(here)))
    return found


@given(shape=st.integers(0, 15), before=HISTORY, after=HISTORY)
def test_sums_are_what_a_count_finds(
    shape: int, before: list[Command], after: list[Command]
) -> None:
    history = History(world(shape))
    history.run(before)
    assert contents(history.state) == counted(history.state)
    mark = history.state.mark()
    history.run(after)
    assert contents(history.state) == counted(history.state)
    history.state.undo(mark)
    assert contents(history.state) == counted(history.state)


def test_only_pools_that_are_asked_for_and_there() -> None:
    state = world(1)
    assert [each.pool.id for each in contents(state, ["west", "gone"])] == ["west"]

"""A state that is loaded is, in every field, the one that the same entities make one by one."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from cede.engine.state.entities import Entity, table_of
from cede.engine.state.state import State
from tests.engine.traces import trace
from tests.worlds.draw import KINDS
from tests.worlds.walk import Walk, walk

WALK = st.builds(walk, st.sampled_from(sorted(KINDS)), st.integers(0, 999))
STEPS = st.lists(st.integers(0, 99), max_size=12)


def entities(state: State) -> Iterator[Entity]:
    """What a store would load, in its order."""
    yield from state.pools.values()
    yield from state.nodes.values()
    yield from state.policies.values()
    yield from state.tenants.values()
    yield from (each for each in state.requests.values() if not each.ended)
    yield from (each for each in state.allocations.values() if each.live)


def one_by_one(state: State) -> State:
    found = State()
    found.now = found.passed = state.now
    found.index = state.index
    for entity in entities(state):
        found._replace(table_of(entity), entity.id, None, entity)
    found._log.clear()
    found.journal.clear()
    found._touched.clear()
    return found


@settings(max_examples=60)
@given(WALK, STEPS)
def test_many_at_once_are_the_same_as_one_by_one(walk: Walk, steps: list[int]) -> None:
    walk.go(steps)
    loaded = State()
    loaded.load(entities(walk.state), index=walk.state.index, now=walk.state.now)
    assert trace(loaded) == trace(one_by_one(walk.state))

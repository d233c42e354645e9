"""Timers come up once, in order, and never before or without being due."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cede.engine.state.journal import Journal
from cede.engine.state.timers import Key, Timers

STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 50)), st.booleans()),
    max_size=60,
)


@given(STEPS)
def test_timers_are_a_table_of_what_is_due(steps: list[tuple[int, int | None, bool]]) -> None:
    """Against a plain table. The clock never goes back, and what came up is put back if it is due
    again, as the state does it."""
    true: dict[Key, int] = {}
    timers = Timers(true.get, Journal())
    now = 0
    for number, at, look in steps:
        key = ("request", str(number))
        if look:
            now = max(now, at or 0)
            expected = sorted((due, each) for each, due in true.items() if due <= now)
            assert timers.pop_due(now) == [each for _, each in expected]
            for _, each in expected:
                del true[each]
        elif at is None:
            true.pop(key, None)
        else:
            true[key] = max(at, now)
            timers.schedule(key, true[key])
        assert timers.next() == min(true.values(), default=None)


def test_an_entry_that_moved_later_comes_up_at_its_new_instant() -> None:
    true: dict[Key, int] = {("request", "a"): 5}
    timers = Timers(true.get, Journal())
    timers.schedule(("request", "a"), 5)
    true["request", "a"] = 9
    assert timers.pop_due(8) == []
    assert timers.next() == 9
    assert timers.pop_due(9) == [("request", "a")]
    assert timers.next() is not None or true  # due still: whoever popped it schedules it again

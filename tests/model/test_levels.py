"""Means over time, and instants as times of day."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cede.model.bounds import DAY, HOUR
from cede.model.levels import Level, Levels, means
from cede.model.wall import Note, Wall


def at(instant: int, used: float, requests: float = 0) -> Levels:
    return Levels(instant, {"gpu": Level(8, used, 0, 0)}, requests)


def test_a_level_holds_until_the_next_one() -> None:
    found = [at(0, 2), at(30, 6, 3)]
    first, second, third = means(found, (0, 60, 120, 180))
    assert first is not None and first.keys["gpu"] == Level(8, 4, 0, 0) and first.requests == 1.5
    assert second is not None and second.keys["gpu"].used == 6 == third.keys["gpu"].used  # type: ignore[union-attr]


def test_nothing_is_said_of_what_was_before_the_first_note() -> None:
    assert means([at(100, 2)], (0, 50, 100, 150)) == [
        None,
        None,
        Levels(100, {"gpu": Level(8, 2, 0, 0)}),
    ]
    (half,) = means([at(100, 2)], (50, 150))
    assert half is not None and half.keys["gpu"].used == 2


def test_time_while_the_machine_was_off_is_on_the_wall_only() -> None:
    wall = Wall([Note(0, 1000), Note(500, 5000)])
    assert [wall.time(each) for each in (0, 499, 500)] == [1000, 1499, 5500]
    assert [wall.instant(each) for each in (900, 1000, 1499, 3000, 5500, 6000)] == [
        0, 0, 499, 500, 500, 1000,
    ]  # fmt: skip


NOTES = st.lists(
    st.tuples(st.integers(0, 20 * 24), st.integers(0, 30 * 24)), min_size=1, max_size=4
)


@given(NOTES, st.lists(st.integers(0, 25 * 24), min_size=1, max_size=5))
def test_days_follow_each_other_whatever_the_clocks_did(
    notes: list[tuple[int, int]], hours: list[int]
) -> None:
    """Every instant is of one day: from its beginning to before the next one's."""
    known = [Note(at * HOUR, ahead * HOUR) for at, ahead in dict(notes).items()]
    wall = Wall(known)
    for instant in (hour * HOUR for hour in hours):
        day = wall.day(instant)
        assert day == Wall(known).day(instant), "what was asked before changes nothing"
        assert wall.instant(day * DAY) <= instant < wall.instant((day + 1) * DAY) or day == 0

"""The history of pools: right after an absence, in bounded size, on both databases; and reports by
days, whatever the clocks did.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from cede.model.bounds import DAY, HISTORY_COARSE, HISTORY_COARSE_KEEP, HOUR, MINUTE
from cede.model.levels import Level, Levels
from cede.model.lifecycle import RequestStatus
from cede.model.wall import Note
from cede.store import Store, schema
from cede.store.usage import By
from cede.store.values import Keep, Moment, Noted
from tests.store.samples import allocation, batch, changes, policy, pool, request
from tests.store.samples import started as start
from tests.store.test_retention import ENDED, run_all

AHEAD = 20_000 * DAY


def level(used: int, capacity: int = 8) -> dict[str, Levels]:
    return {"pool-1": Levels(0, {"gpu": Level(capacity, used, 0, 0)}, used)}


def note(store: Store, noted: Noted, now: int) -> None:
    head = store.head()
    made = batch(head, changes(), index=head, moment=Moment(now, "boot", now))
    made.noted = noted
    store.commit(made)


def sample(store: Store, used: int, now: int, *, returning: bool = False) -> None:
    note(store, store.next_note(level(used), now, AHEAD, returning=returning), now)


def used(store: Store, since: int, until: int) -> list[tuple[int, float]]:
    return [(each.at, each.keys["gpu"].used) for each in store.levels("pool-1", since, until)]


def test_a_minute_is_noted_once_and_holds_until_the_next(database_url: str) -> None:
    store, _ = start(database_url)
    sample(store, 2, 10 * MINUTE + 7)
    assert store.next_note(level(5), 10 * MINUTE + 9, AHEAD).empty
    sample(store, 4, 11 * MINUTE)
    assert used(store, 10 * MINUTE, HOUR) == [(10 * MINUTE, 2), (11 * MINUTE, 4)]
    store.close()


def test_an_absence_has_the_level_at_which_it_began(database_url: str) -> None:
    """After the last sample of before something was granted and the server was killed; five hours
    later it comes back, and what it found holds for all of them.
    """
    store, _ = start(database_url)
    sample(store, 2, 10 * MINUTE)
    store.close()
    store, _ = start(database_url)
    back = 5 * HOUR + 10 * MINUTE
    sample(store, 6, back, returning=True)
    sample(store, 1, back)
    assert used(store, 10 * MINUTE, 6 * HOUR) == [(10 * MINUTE, 2), (11 * MINUTE, 6), (back, 1)]
    for hour in (6, 7, 40):  # until the minutes of that day are gone
        sample(store, 1, hour * HOUR)
    whole = {at: mean for at, mean in used(store, 0, 40 * HOUR) if at < 6 * HOUR}
    assert whole[0] == round((2 * 1 + 6 * 49) / 50, 3) and whole[HOUR] == 6
    assert all(mean == 6 for at, mean in whole.items() if HOUR <= at < 5 * HOUR)
    store.close()


def test_what_is_too_old_goes(database_url: str) -> None:
    store, _ = start(database_url)
    for now in (0, HOUR, 2 * HOUR):
        sample(store, 1, now)
    assert [at for at, _ in used(store, 0, 3 * HOUR)] == [0, HOUR, 2 * HOUR]
    sample(store, 2, 30 * HOUR)  # minutes go after 25 hours; hours have taken their place
    assert rows(store, MINUTE) == [30 * HOUR]
    assert rows(store, HISTORY_COARSE)[:3] == [0, HOUR, 2 * HOUR]
    for now in (HISTORY_COARSE_KEEP + 31 * HOUR, HISTORY_COARSE_KEEP + 33 * HOUR):
        sample(store, 2, now)
    assert min(rows(store, HISTORY_COARSE)) >= 31 * HOUR
    store.close()


def rows(store: Store, step: int) -> list[int]:
    with store._readers.begin() as connection:
        found = connection.execute(select(schema.history.c.step, schema.history.c.at)).all()
    return sorted(at for each, at in found if each == step)


def test_the_time_of_day_is_noted_when_it_moves(database_url: str) -> None:
    store, _ = start(database_url)
    sample(store, 1, 10 * MINUTE)
    assert store.next_note(level(1), 11 * MINUTE, AHEAD + 900).clock is None
    moved = store.next_note(level(1), 11 * MINUTE, AHEAD + 2 * HOUR)
    assert moved.clock == Note(11 * MINUTE, AHEAD + 2 * HOUR)
    note(store, moved, 11 * MINUTE)
    assert store.wall().time(11 * MINUTE) == 11 * MINUTE + AHEAD + 2 * HOUR
    assert store.wall().time(5 * MINUTE) == 5 * MINUTE + AHEAD
    store.close()


OFF = st.lists(st.integers(0, 60), min_size=0, max_size=3)


@settings(max_examples=10)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 60)), min_size=1, max_size=6), OFF)
def test_days_add_up_and_stay_when_requests_are_removed(
    spells: list[tuple[int, int]], off: list[int]
) -> None:
    """Also where the machine was off, so that days are shorter on the server's clock."""
    now = 300 * HOUR
    with TemporaryDirectory() as folder:
        store, _ = start(f"sqlite:///{Path(folder) / 'cede.db'}")
        ahead = AHEAD
        for number, hours in enumerate(off):
            ahead += hours * HOUR
            note(store, Noted(clock=Note(number * 70 * HOUR + 1, ahead)), number * 70 * HOUR + 1)
        made = [pool(), policy()]
        for number, (begin, hours) in enumerate(spells):
            id_ = f"r{number}"
            first, last = begin * HOUR, (begin + hours) * HOUR
            made.append(
                request(id_, number + 1, status=RequestStatus.RELEASED, labels={"project": "x"})
            )
            made.append(
                allocation(
                    id_,
                    allocated_at=first,
                    ended_at=last,
                    state=ENDED,
                    lost=hours * MINUTE,
                    index=100 + number,
                )
            )
        store.commit(batch(0, changes(made), index=50, moment=Moment(now, "boot", now)))
        before = store.usage(By.LABEL, now, since=0, days=True)
        (whole,) = store.usage(By.LABEL, now)
        assert (
            sum(each.usage.amount_time["gpu"] for each in before) == whole.usage.amount_time["gpu"]
        )
        assert sum(each.lost.amount_time.get("gpu", 0) for each in before) == (
            whole.lost.amount_time.get("gpu", 0)
        )
        assert sum(each.starts for each in before) == whole.starts == len(spells)
        days = [(each.day, each.usage.amount_time) for each in before]
        run_all(store, Keep(requests=0, events=None), 100 * DAY)
        after = store.usage(By.LABEL, now, since=0, days=True)
        assert [(each.day, each.usage.amount_time) for each in after] == days
        assert [each.lost for each in after] == [each.lost for each in before]
        assert [each.starts for each in after] == [each.starts for each in before]
        store.close()

"""A queue answers as a plain list would, however it is cut into chunks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cede.engine.ledger import queue as queue_module
from cede.engine.ledger.queue import BEGINNING, Age, Queue
from cede.model.amounts import within

AMOUNTS = st.dictionaries(st.sampled_from(["gpu", "mcpu"]), st.integers(1, 4), min_size=1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 20), AMOUNTS),
        st.tuples(st.just("remove"), st.integers(0, 40), st.just({})),
        st.tuples(st.just("first"), st.integers(0, 40), AMOUNTS),
    ),
    max_size=120,
)


@pytest.fixture(autouse=True, params=[2, 3, 256], ids=lambda each: f"chunks of {each}")
def chunks(request: pytest.FixtureRequest) -> None:
    """Small chunks, so that a short history splits and empties them."""
    patch = pytest.MonkeyPatch()
    patch.setattr(queue_module, "_CHUNK_MAX", request.param)
    request.addfinalizer(patch.undo)


@given(STEPS)
def test_a_queue_is_a_sorted_list_with_a_faster_search(steps: list[tuple[str, int, dict]]) -> None:
    queue = Queue()
    plain: list[tuple[Age, dict[str, int]]] = []
    for number, (what, where, amounts) in enumerate(steps):
        if what == "add":
            age = (where, number, f"r{number}")
            queue.add(age, amounts)
            plain.append((age, amounts))
            plain.sort(key=lambda each: each[0])
        elif what == "remove" and plain:
            age, _ = plain.pop(where % len(plain))
            queue.remove(age)
        elif what == "first":
            after = plain[where % len(plain)][0] if plain and where % 3 else BEGINNING
            besides = {age[2] for age, _ in plain if age[1] % 5 == where % 5}
            expected = next(
                (
                    age
                    for age, demand in plain
                    if age > after and age[2] not in besides and within(demand, amounts)
                ),
                None,
            )
            assert queue.first(amounts, after, besides) == expected
        assert list(queue) == [age[2] for age, _ in plain]
        assert len(queue) == len(plain)
        assert all(queue.demand(age[2]) == demand for age, demand in plain)


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=40))
def test_many_that_join_at_once_stand_where_each_would(waiters: list[tuple[int, bool]]) -> None:
    one, many = Queue(), Queue()
    ages = [(at, number, f"r{number}") for number, (at, _) in enumerate(waiters)]
    first = [age for age, (_, early) in zip(ages, waiters, strict=True) if early]
    later = [age for age in ages if age not in first]
    for age in first:
        one.add(age, {"gpu": 2, "mcpu": 1})
        many.add(age, {"gpu": 2, "mcpu": 1})
    for age in later:
        one.add(age, {"gpu": 1})
    if later:
        many.add_many(later, {"gpu": 1})
    assert list(many) == list(one) == [age[2] for age in sorted(ages)]
    assert (many.least, many.wanted(), len(many)) == (one.least, one.wanted(), len(one))
    assert many.first({"gpu": 1}) == one.first({"gpu": 1})
    for age in ages:
        many.remove(age)
    assert len(many) == 0 and many.oldest is None


def test_an_empty_queue_has_no_first() -> None:
    assert Queue().first({"gpu": 100}) is None


def test_a_room_that_does_not_name_a_key_does_not_bound_it() -> None:
    queue = Queue()
    queue.add((0, 1, "a"), {"gpu": 5, "mcpu": 9})
    assert queue.first({"gpu": 5}) == (0, 1, "a")
    assert queue.first({"gpu": 4}) is None
    assert queue.first({}) == (0, 1, "a")

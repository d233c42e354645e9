"""Properties are repeatable in CI, whatever a test says, and random elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import Properties

ENVIRONMENTS = {
    "at home": ({}, Properties(repeatable=False)),
    "in CI": ({"CI": "true"}, Properties(repeatable=True)),
    "said not to be CI": ({"CI": "false"}, Properties(repeatable=False)),
    "a search": ({"PROPERTY_TIMES": "20"}, Properties(repeatable=False, times=20)),
    "a quick loop": ({"PROPERTY_TIMES": "0.2"}, Properties(repeatable=False, times=0.2)),
    "a quick loop in CI": ({"CI": "1", "PROPERTY_TIMES": "0.2"}, Properties(True, times=0.2)),
    "a search in CI": ({"CI": "1", "PROPERTY_TIMES": "20"}, Properties(False, times=20)),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_environment_says_how_properties_are_searched(name: str) -> None:
    environ, expected = ENVIRONMENTS[name]
    assert Properties.of(environ) == expected


def examples(properties: Properties) -> list[int]:
    """What a test that wants to be random, or not, is really given."""
    seen: list[int] = []

    @settings(max_examples=5, derandomize=not properties.repeatable, deadline=1, database=None)
    @given(st.integers(0, 2**40))
    def test(number: int) -> None:
        seen.append(number)

    properties.hold_for_test(test)
    test()
    return seen


def test_repeatable_examples_are_the_same_again() -> None:
    assert examples(Properties(repeatable=True)) == examples(Properties(repeatable=True))


def test_random_examples_are_others_and_as_many_more_as_asked_for() -> None:
    one, other = (examples(Properties(repeatable=False, times=20)) for _ in range(2))
    assert one != other
    assert len(one) == 100


def test_a_quick_loop_tries_fewer_and_never_none() -> None:
    assert len(examples(Properties(repeatable=False, times=0.4))) == 2
    assert len(examples(Properties(repeatable=False, times=0.01))) == 1

"""The short storm, checked like the long one (`make storm`), and what its books find."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest

from tests.storm.books import Books, Held, compare, complaints, over_capacity
from tests.storm.run import Plan, storm


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(1800)
def test_nothing_is_lost_doubled_or_stuck() -> None:
    plan = Plan(
        seconds=20, every=4, agents=2, callers=3, steps=40, seed=secrets.randbelow(1_000_000)
    )
    result = storm(plan)
    assert not result.account.problems, f"{result.story()}\nin {result.home}"


def books() -> Books:
    made = Books()
    made.made("key", "r1")
    made.ended("r1", "released")
    return made


FOUND = {"key": ["r1"]}


def test_what_a_server_says_of_itself_is_found() -> None:
    (found,) = complaints("serving\nlevel='error' event='the pass failed; nothing is granted'\n")
    assert "the pass failed" in found


def test_equal_accounts_have_no_difference() -> None:
    assert not list(compare(books(), FOUND, {"r1": "released"}))


@pytest.mark.parametrize(
    ("found", "status", "kind"),
    [
        ({}, "released", "lost"),
        ({"key": ["r1", "r2"]}, "released", "doubled"),
        ({**FOUND, "other": ["r3"]}, "released", "unasked"),
        (FOUND, "queued", "undone"),
    ],
)
def test_a_difference_is_found(found: dict[str, list[str]], status: str, kind: str) -> None:
    said = list(compare(books(), found, {"r1": status}))
    assert [each.partition(":")[0] for each in said] == [kind]


def test_a_key_that_is_answered_with_two_requests_is_found() -> None:
    made = books()
    made.made("key", "r2")
    assert [each.partition(":")[0] for each in made.problems] == ["doubled"]


@pytest.mark.parametrize(
    ("second", "is_wrong"),
    [
        (lambda end: Held("r2", 1, end, end + 1), False),
        (lambda end: Held("r2", 1, end - 0.1, end + 1), True),
    ],
    ids=["one after the other", "both at once"],
)
def test_units_that_are_held_twice_are_found(
    second: Callable[[float], Held], is_wrong: bool
) -> None:
    first = Held("r1", 8, 0.0, 5.0)
    assert bool(list(over_capacity([first, second(5.0)], 8))) is is_wrong

"""Why a waiter waits is what the pass met; the account's bounds are each found, with numbers."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from cede.engine.decide import decide
from cede.engine.explain import why as explain
from cede.engine.ledger.account import Allowance, Bound, Verdict, check, headroom
from cede.engine.queue import bounds
from cede.engine.queue.bounds import verdict_on
from cede.engine.state.state import State
from cede.engine.state.trial import what_if
from tests.engine.traces import trace
from tests.scenario import tell
from tests.worlds.checks import Broken
from tests.worlds.draw import KINDS
from tests.worlds.verdict_checks import Watch
from tests.worlds.walk import walk

WALKS = 40


def watched(kind: str, walks: int = WALKS) -> Watch:
    """Walk through worlds of one kind, and compare every reason after every step."""
    watch = Watch()
    with watch.watching():
        for seed in range(walks):
            rng = Random(seed)
            each = walk(kind, seed)
            watch.check(each.state)
            for _ in range(10):
                each.go([rng.randrange(100)])
                watch.check(each.state)
            watch.met.clear()
    return watch


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_waiter_is_told_the_bound_that_the_pass_met(kind: str) -> None:
    watch = watched(kind)
    assert watch.compared > WALKS, "too few waiters were compared to say anything"
    assert Bound.FREE in watch.kinds or Bound.PLACEMENT in watch.kinds


def test_a_second_opinion_is_found() -> None:
    """One that asks the pool before the policy finds another bound first."""

    def other(demand: Any, allowances: Any) -> Verdict:
        return check(demand, reversed(list(allowances)))

    with patch.object(bounds, "check", other), pytest.raises(Broken, match="is told"):
        watched("trees")


def test_wrong_words_for_a_verdict_are_found() -> None:
    words = {**explain._WORDS, Bound.OWN_LIMIT: explain._not_free}
    with patch.object(explain, "_WORDS", words), pytest.raises(Broken, match="met own_limit"):
        watched("quota")


# The account ----------------------------------------------------------------------------------


def test_the_first_bound_is_named_by_the_key_of_which_the_most_is_missing() -> None:
    allowances = [
        Allowance(Bound.OWN_LIMIT, "red", {"gpu": 4}),
        Allowance(Bound.FREE, "", {"gpu": 3, "mcpu": 0}),
        Allowance(Bound.PROMISED, "", {"gpu": 0, "mcpu": 0}),
    ]
    assert check({"gpu": 4, "mcpu": 9}, allowances) == Verdict(Bound.FREE, "", "mcpu", 9, 0)
    assert check({"gpu": 5}, allowances) == Verdict(Bound.OWN_LIMIT, "red", "gpu", 5, 4)
    assert check({"disk": 5}, allowances).fits  # a key that no bound names
    assert headroom(allowances) == {"gpu": 0, "mcpu": 0}


def test_where_nothing_fits_there_is_no_headroom() -> None:
    allowances = [
        Allowance(Bound.FREE, "", {"gpu": 3}),
        Allowance(Bound.PLACEMENT, "", None),
    ]
    assert check({"gpu": 1}, allowances) == Verdict(Bound.PLACEMENT)
    assert headroom(allowances) is None


STORIES: dict[str, tuple[str, str, Verdict]] = {
    "the policy's limit": (
        """
        pool gpus 8
          team red reserved 0 limit 4
        red submits a of 3 -> running a
        red submits b of 2 -> waiting b
        """,
        "b",
        Verdict(Bound.OWN_LIMIT, "gpus/red", "gpu", 2, 1),
    ),
    "what is free": (
        """
        pool gpus 8
          team red reserved 0
        red submits a of 7 -> running a
        red submits b of 2 -> waiting b
        """,
        "b",
        Verdict(Bound.FREE, "", "gpu", 2, 1),
    ),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=list(STORIES))
def test_a_verdict_has_numbers(story: tuple[str, str, Verdict]) -> None:
    text, request_id, expected = story
    state = tell(text).state
    assert _verdict(state, request_id) == expected


def _verdict(state: State, request_id: str) -> Verdict:
    (policy,) = state.places(request_id)
    request = state.requests[request_id]
    return verdict_on(state, state.ledgers[policy.pool_id], request, policy.id)


def test_the_last_verdict_stands_until_a_pass_looks_again() -> None:
    """A pool in which nothing changed is not looked at, and keeps what was met there."""
    state = tell(STORIES["what is free"][0]).state
    met = state.passed_over["gpus"]
    decide(state, state.now)
    assert state.passed_over["gpus"] is met
    assert _verdict(state, "b") == STORIES["what is free"][2]


@pytest.mark.parametrize("forget", [True, False])
def test_before_a_pass_the_verdict_is_the_one_that_it_will_meet(forget: bool) -> None:
    state = tell(STORIES["the policy's limit"][0]).state
    if forget:
        del state.passed_over["gpus"]
    state.dirty["gpus"] = None
    before = _verdict(state, "b")
    decide(state, state.now)
    assert before == _verdict(state, "b") == STORIES["the policy's limit"][2]


def test_what_a_tried_pass_met_is_forgotten() -> None:
    state = tell(STORIES["what is free"][0]).state
    before, met = trace(state), state.passed_over["gpus"]
    with what_if(state):
        state.dirty["gpus"] = None
        decide(state, state.now)
        assert state.passed_over["gpus"] is not met
    assert state.passed_over["gpus"] is met
    assert trace(state) == before

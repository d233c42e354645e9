"""The property "what `why` says comes true", on walks through the worlds."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from cede.engine.decide import decide
from cede.engine.explain import what_if, why
from cede.engine.ledger.account import Bound
from cede.engine.queue.forecast import earliest_start
from cede.engine.state.state import State
from cede.snapshot.reader import load

from .checks import Broken
from .draw import KINDS
from .why_checks import STEPS, Said, check_latest, check_walk

# Of each kind of world. `python -m tests.worlds --why 400` walks further.
WALKS = 6


def walked(kind: str) -> Said:
    said = Said()
    for seed in range(WALKS):
        check_walk(kind, seed, STEPS, said)
    return said


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.slow if kind == "fair on nodes" else ())
        for kind in KINDS
    ],
)
def test_what_why_says_comes_true(kind: str) -> None:
    said = walked(kind)
    assert said.waiters > 20 and said.tried > 20, said
    assert said.helped >= 0.9 * said.waiters, said


def _drawn(seed: int) -> dict[str, Any]:
    """A counted pool in which some have walltimes, and some wait."""
    rng = Random(seed)
    teams = ["red", "blue", "green"][: rng.randint(1, 3)]
    capacity = rng.randint(2, 8)
    policies = [
        {"pool": "p", "component": each, "component_type": "team", "priority": rng.randint(1, 2)}
        | ({"limit": {"gpu": rng.randint(1, capacity)}} if rng.random() < 0.3 else {})
        for each in teams
    ]

    def ask(number: int, most: int) -> dict[str, Any]:
        whose = rng.choice(teams)
        made = {"id": f"r{number}", "component": whose, "component_type": "team", "retries": 2}
        made |= {"resources": {"gpu": rng.randint(1, most)}}
        return made | ({"walltime": rng.randint(10, 500)} if rng.random() < 0.8 else {})

    asks = [ask(number, max(capacity // 2, 1)) for number in range(rng.randint(2, 6))]
    return {"pools": [{"name": "p", "capacity": {"gpu": capacity}}],
            "policies": policies, "requests": asks}  # fmt: skip


def test_at_the_latest_holds_against_every_order_of_endings() -> None:
    said = Said()
    for seed in range(300):
        state = load(_drawn(seed))
        decide(state, state.now)
        check_latest(state, Random(seed), said)
    assert said.bounded > 50, said


# Planted bugs ---------------------------------------------------------------------------------


def test_a_promise_that_is_told_to_others_is_found() -> None:
    words = {**why._WORDS, Bound.FREE: why._on_its_way}
    with patch.object(why, "_WORDS", words), pytest.raises(Broken, match="is told"):
        walked("quota")


def test_a_remedy_that_does_not_help_is_found() -> None:
    def starts(state: State, request_id: str, make: object) -> str:
        return "starts"

    with patch.object(what_if, "_outcome", starts), pytest.raises(Broken, match="does not start"):
        walked("quota")


def test_a_start_that_others_may_delay_is_found() -> None:
    """The instant at which walltimes alone would have made room says nothing of other waiters."""

    def alone(state: State, ledger: Any, request: Any, policy_id: str) -> int | None:
        start = earliest_start(state, ledger, request)
        return None if start is None else start.at

    with patch.object(why, "latest_start", alone), pytest.raises(Broken, match="was to start"):
        for seed in range(300):
            state = load(_drawn(seed))
            decide(state, state.now)
            check_latest(state, Random(seed), Said())

"""Pools that share fairly come to rest, and when they do nobody could still take fairly."""

from __future__ import annotations

import pytest

from tests.fair import rest
from tests.worlds.fair_mutants import takes_no_more


@pytest.mark.parametrize(
    "first",
    [pytest.param(0, id="some"), pytest.param(30, id="others", marks=pytest.mark.slow)],
)
def test_nobody_rests_who_could_take_fairly(first: int) -> None:
    found = {seed: rest.run(seed) for seed in range(first, first + 30)}
    assert not [seed for seed, each in found.items() if each.loops]
    assert {seed: each.unserved for seed, each in found.items() if each.unserved} == {}


def test_an_engine_that_takes_nothing_is_found_out() -> None:
    with takes_no_more():
        assert any(rest.run(seed).unserved for seed in range(12))

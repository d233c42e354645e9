"""The short soak: a few stops and kills, checked like the long one (`make soak`)."""

from __future__ import annotations

import secrets

import pytest

from tests.soak.run import Plan, soak


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_stops_amid_kills_lose_nothing() -> None:
    plan = Plan(
        stops=12, kills=8, agents=3, steps=60, seed=secrets.randbelow(1_000_000), seconds=600
    )
    result = soak(plan)
    assert not result.account.problems, f"{result.story()}\nin {result.home}"

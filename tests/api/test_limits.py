"""A token's budget is spent, refills, and is not shared (C10)."""

from __future__ import annotations

import pytest

from cede.server.api import limits
from cede.server.api.limits import Limiter
from cede.server.api.problem import Problem


def test_a_spent_budget_is_429_with_its_bound_and_refills() -> None:
    limiter = Limiter(rate=10, burst=20)
    for _ in range(20):
        limiter.spend("a", 1, 0.0)
    with pytest.raises(Problem) as caught:
        limiter.spend("a", 1, 0.0)
    assert caught.value.status == 429
    assert "10 cost units a second, 20 at once" in caught.value.detail
    assert int(caught.value.headers["Retry-After"]) >= 1
    limiter.spend("b", 1, 0.0)
    limiter.spend("a", 10, 1.0)


def test_a_call_dearer_than_the_bucket_gets_through_when_it_is_full_and_then_pays() -> None:
    limiter = Limiter(rate=10, burst=20)
    limiter.spend("a", 100, 0.0)
    with pytest.raises(Problem):
        limiter.spend("a", 1, 1.0)
    limiter.spend("a", 1, 10.0)


def test_full_buckets_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BUCKETS_MAX", 3)
    limiter = Limiter(rate=10, burst=20)
    for name in "abcdefgh":
        limiter.spend(name, 1, 0.0)
    assert len(limiter._buckets) <= 3

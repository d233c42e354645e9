"""The short form of `make stall`: what must happen, and nothing about how fast."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stall.run import attacked, site

pytestmark = [pytest.mark.system, pytest.mark.slow]


def test_no_lease_is_lost_under_attack(tmp_path: Path) -> None:
    with site(tmp_path) as where:
        where.prepare(waiting=1_000, tokens=3)
        seen, answers, _ = attacked(where, 8)
        assert where.call(where.holder, "GET", f"/requests/{where.held}")[0] == 200
    assert not seen.lost
    assert seen.renewals and seen.health
    assert not [each for each in answers if each.endswith(" 500")], answers
    assert "a head of 195 MB was taken" not in answers
    assert answers["/requests 413"] and answers["half-open connections"], answers

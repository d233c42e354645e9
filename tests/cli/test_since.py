"""What may be written after --since."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from cede.cli.since import Since, parse_since

NOW = datetime(2026, 11, 16, 14, 30).astimezone()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1.5h", 5400),
        ("0s", 0),
        ("10", 10),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_since(text, NOW) == Since(age=seconds)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("14:30", NOW),
        ("9:05", NOW.replace(hour=9, minute=5)),
        ("14:30:01", NOW + timedelta(seconds=1, days=-1)),  # not yet today
        ("2026-11-16", NOW.replace(hour=0, minute=0)),
        ("2026-11-16T14:30", NOW),
        ("2026-11-16 14:30:00", NOW),
        ("2026-11-16T14:30:00+00:00", datetime.fromisoformat("2026-11-16T14:30:00+00:00")),
    ],
)
def test_times(text: str, at: datetime) -> None:
    assert parse_since(text, NOW) == Since(at=at.timestamp())


@pytest.mark.parametrize("text", ["", "soon", "1h30", "m", "25:00", "2026-13-01", "-5m"])
def test_nothing_else(text: str) -> None:
    assert parse_since(text, NOW) is None

"""Lengths of time as people write them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cede.model import bounds
from cede.model.durations import parse_duration, seconds
from cede.model.errors import Invalid

UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ("5400", 5_400_000),
        ("1h30m", 5_400_000),
        ("90m", 5_400_000),
        ("1.5h", 5_400_000),
        (5400, 5_400_000),
        (Decimal("0.25"), 250),
        ("0", 0),
        ("0s", 0),
        ("0.25", 250),
        ("1h90m", 9_000_000),
        ("1w2d3h4m5.5s", 788_645_500),
        ("366d", bounds.DURATION_MAX),
    ],
)
def test_a_time_is_seconds_or_has_units(written: Any, milliseconds: int) -> None:
    assert parse_duration(written, "walltime") == milliseconds


BAD = {
    "empty": "",
    "a space": "1h 30m",
    "a newline": "5\n",
    "negative": "-5",
    "a sign inside": "1h-3",
    "two points": "1.5.2",
    "no whole part": ".5",
    "no fraction": "5.h",
    "a fraction before another unit": "1.5h30m",
    "units from small to large": "30m1h",
    "a unit twice": "1h1h",
    "a unit alone": "h",
    "no unit at the end": "1h30",
    "a unit that is none": "5y",
    "capitals": "5H",
    "an exponent": "1e3",
    "an underscore": "1_000",
    "digits of another script": "٣٠m",
    "wide digits": "５",
    "a superscript": "5²",
    "not a number": "nan",
    "endless": "inf",
    "very long": "1" * 5000,
    "very long with a unit": "1" * 5000 + "h",
}


@pytest.mark.parametrize("written", BAD.values(), ids=BAD)
def test_what_is_no_time_is_answered_with_an_example(written: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_duration(written, "walltime")
    assert caught.value.field == "walltime"
    assert "such as 90, 90m or 1h30m" in caught.value.problem
    assert len(str(caught.value)) < 200 and "\n" not in str(caught.value)


@pytest.mark.parametrize("written", ["367d", "53w", "31622401", "9" * 20, "99999999999999999999h"])
def test_what_is_too_long_is_answered_with_the_bound(written: str) -> None:
    with pytest.raises(Invalid, match="must be from 0 to 31622400 seconds, not '"):
        parse_duration(written, "walltime")


@given(st.lists(st.integers(0, 50), min_size=5, max_size=5), st.integers(1, 31))
def test_the_parts_of_a_time_add_up(numbers: list[int], chosen: int) -> None:
    parts = [
        (number, unit)
        for place, (number, unit) in enumerate(zip(numbers, UNITS, strict=True))
        if chosen >> place & 1
    ]
    text = "".join(f"{number}{unit}" for number, unit in parts)
    whole = sum(number * UNITS[unit] for number, unit in parts)
    assert parse_duration(text, "t", most=2**53) == whole


@given(st.integers(0, bounds.DURATION_MAX))
def test_what_is_shown_can_be_typed(milliseconds: int) -> None:
    assert parse_duration(str(seconds(milliseconds)), "t") == milliseconds


@given(st.text(max_size=30) | st.text("0123456789.wdhms-", max_size=30))
def test_any_text_is_a_time_or_is_refused(text: str) -> None:
    try:
        found = parse_duration(text, "t")
    except Invalid as error:
        assert len(str(error)) < 200
    else:
        assert text.isascii() and 0 <= found <= bounds.DURATION_MAX

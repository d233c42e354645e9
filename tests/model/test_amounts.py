"""Amounts, subjects, settings and durations: what is taken from outside, and the arithmetic."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cede.model import bounds
from cede.model.amounts import (
    add_to,
    parse_amounts,
    plus,
    show,
    take_from,
    total,
    total_of_many,
    within,
)
from cede.model.durations import parse_duration, parse_instant, seconds
from cede.model.errors import Invalid
from cede.model.settings import Precedence, Settings
from cede.model.subject import Subject, parse_name

AMOUNTS = st.dictionaries(st.sampled_from(["gpu", "mcpu", "tpu"]), st.integers(1, 9))


@given(AMOUNTS, AMOUNTS)
def test_adding_and_taking_are_each_others_inverse(a: dict[str, int], b: dict[str, int]) -> None:
    counter = dict(a)
    add_to(counter, b)
    assert counter == plus(a, b) == total([a, b]) == total_of_many([a, b])
    assert total_of_many([a, b, dict(a), a]) == total([a, b, a, a])
    take_from(counter, b)
    assert counter == a  # no zeros stay behind


@given(AMOUNTS, AMOUNTS)
def test_within_looks_only_at_keys_that_both_name(a: dict[str, int], room: dict[str, int]) -> None:
    assert within(a, room) == all(a[key] <= room[key] for key in a.keys() & room.keys())


def test_within_ignores_what_is_not_needed() -> None:
    assert within({"gpu": 0, "mcpu": 1}, {"gpu": -5, "mcpu": 1})
    assert not within({"gpu": 1}, {"gpu": -5})


def test_amounts_read_like_a_sentence() -> None:
    assert show({"mcpu": 4000, "gpu": 2}) == "2 gpu, 4000 mcpu"
    assert show({}) == "nothing"


BAD_AMOUNTS: dict[str, tuple[Any, str]] = {
    "a list": ([], "capacity"),
    "text": ("gpu", "capacity"),
    "nothing": ({}, "capacity"),
    "zero where one is least": ({"gpu": 0}, "capacity.gpu"),
    "negative": ({"gpu": -1}, "capacity.gpu"),
    "a float": ({"gpu": 2.0}, "capacity.gpu"),
    "a boolean": ({"gpu": True}, "capacity.gpu"),
    "null": ({"gpu": None}, "capacity.gpu"),
    "beyond exact integers": ({"gpu": 2**53}, "capacity.gpu"),
    "beyond printing": ({"gpu": 10**5000}, "capacity.gpu"),
    "a key with a space": ({"a b": 1}, "capacity"),
    "an empty key": ({"": 1}, "capacity"),
    "a long key": ({"k" * 64: 1}, "capacity"),
    "a number as key": ({7: 1}, "capacity"),
    "too many keys": ({f"k{n}": 1 for n in range(65)}, "capacity"),
}


@pytest.mark.parametrize(("value", "field"), BAD_AMOUNTS.values(), ids=BAD_AMOUNTS)
def test_bad_amounts_name_their_key(value: Any, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_amounts(value, "capacity", least=1, empty=False)
    assert caught.value.field == field
    assert len(str(caught.value)) < 300


BAD_DURATIONS: dict[str, Any] = {
    "negative": -1,
    "boolean": True,
    "text": "five",
    "null": None,
    "nan": float("nan"),
    "infinite": float("inf"),
    "too long": 10**12,
    "beyond printing": 10**5000,
    "beyond decimals": Decimal("1e999999"),
}


@pytest.mark.parametrize("value", BAD_DURATIONS.values(), ids=BAD_DURATIONS)
def test_bad_durations_are_refused(value: Any) -> None:
    with pytest.raises(Invalid) as caught:
        parse_duration(value, "walltime")
    assert caught.value.field == "walltime"
    assert len(str(caught.value)) < 300


@given(st.integers(0, 10**12))
def test_seconds_and_milliseconds_go_both_ways(milliseconds: int) -> None:
    shown = seconds(milliseconds)
    assert parse_instant(shown, "now") == milliseconds
    assert parse_instant(Decimal(milliseconds) / 1000, "now") == milliseconds


def test_durations_are_exact_to_the_millisecond() -> None:
    assert [parse_duration(milli / 1000, "grace") for milli in range(20_000)] == [*range(20_000)]


BAD_SETTINGS: dict[str, tuple[Any, str]] = {
    "no map": ([], "settings"),
    "unknown": ({"colour": 1}, "settings.colour"),
    "no precedence": ({"precedence": "rank"}, "settings.precedence"),
    "a list as precedence": ({"precedence": []}, "settings.precedence"),
    "a negative count": ({"bypass_max": -1}, "settings.bypass_max"),
    "a fraction of a count": ({"bypass_max": 1.5}, "settings.bypass_max"),
    "a boolean count": ({"bypass_max": True}, "settings.bypass_max"),
    "a negative duration": ({"grace": -1}, "settings.grace"),
    "a duration in words": ({"min_run": "half a minute"}, "settings.min_run"),
    "a year and more": ({"withhold_max": 10**9}, "settings.withhold_max"),
}


@pytest.mark.parametrize(("value", "field"), BAD_SETTINGS.values(), ids=BAD_SETTINGS)
def test_bad_settings_name_themselves(value: Any, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        Settings().override(value)
    assert caught.value.field == field


def test_only_what_differs_from_the_preset_is_shown() -> None:
    given_ = {"precedence": "rank_first", "grace": 2.5, "bypass_max": 3}
    settings = Settings().override(given_)
    assert settings.precedence is Precedence.RANK_FIRST
    assert (settings.grace, settings.bypass_max) == (2500, 3)
    assert settings.differences(Settings()) == given_
    assert Settings().override(settings.differences(Settings())) == settings


@pytest.mark.parametrize(
    "name", ["", ".", "..", " a", "a/b", "a\\b", "a\nb", "a\x00", "x" * 129, "\u202eabc", 7, None]
)
def test_names_are_safe_to_print_and_to_file_under(name: Any) -> None:
    with pytest.raises(Invalid):
        parse_name(name, "name")


def test_subjects_have_a_type_and_a_name() -> None:
    assert Subject.parse("red") == Subject("orchestrator", "red")
    assert Subject.parse("team:red") == Subject("team", "red")
    assert str(Subject("team", "red")) == "team:red"
    for bad in ("robot:red", "team:", ":red", ""):
        with pytest.raises(Invalid):
            Subject.parse(bad)


def test_bounds_stay_exact_in_every_json_reader() -> None:
    assert int(float(bounds.AMOUNT_MAX)) == bounds.AMOUNT_MAX == 2**53 - 1


@pytest.mark.parametrize(
    ("written", "amounts"),
    [
        ("gpu=8", {"gpu": 8}),
        ("gpu=8,mcpu=4000", {"gpu": 8, "mcpu": 4000}),
        (" gpu = 8 , mcpu = 0 ", {"gpu": 8, "mcpu": 0}),
        ("memory_mb=16GiB", {"memory_mb": 17180}),
        ("memory_mb=16000MB,memory_mb.x=1", {"memory_mb": 16000, "memory_mb.x": 1}),
        ({"memory_mb": "16000MB", "gpu": 1}, {"memory_mb": 16000, "gpu": 1}),
        ({"memory_mb": 5}, {"memory_mb": 5}),
    ],
)
def test_amounts_are_pairs_or_a_map(written: Any, amounts: dict[str, int]) -> None:
    assert parse_amounts(written, "capacity") == amounts


BAD_PAIRS = {
    "nothing": ("", "such as gpu=8,mcpu=4000"),
    "no amount": ("gpu", "such as gpu=8,mcpu=4000"),
    "an empty amount": ("gpu=", "such as gpu=8,mcpu=4000"),
    "no key": ("=8", "such as gpu=8,mcpu=4000"),
    "a comma too many": ("gpu=8,", "such as gpu=8,mcpu=4000"),
    "a key twice": ("gpu=1,gpu=2", "gpu is there twice"),
    "a fraction": ("gpu=1.5", "must be an integer, not '1.5'"),
    "a word": ("gpu=all", "must be an integer, not 'all'"),
    "an underscore": ("gpu=1_000", "must be an integer"),
    "digits of another script": ("gpu=٣", "must be an integer"),
    "wide digits": ("gpu=８", "must be an integer"),
    "a size of something else": ("gpu=16GiB", "must be an integer"),
    "a size without a unit that is known": ("memory_mb=16XB", "must be an integer"),
    "negative": ("gpu=-1", "must be from 0 to"),
    "huge": ("gpu=" + "9" * 40, "must be from 0 to"),
    "enormous": ("gpu=" + "9" * 5000, "must be an integer"),
    "a huge size": ("memory_mb=999999999999999999PiB", "must be at most"),
    "no resource key": ("8gpu=1", "is not a resource key"),
}


@pytest.mark.parametrize(("written", "said"), BAD_PAIRS.values(), ids=BAD_PAIRS)
def test_what_is_no_amount_is_answered_in_one_line(written: str, said: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_amounts(written, "capacity")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 250 and "\n" not in str(caught.value)


KEYS = st.from_regex(r"\A[A-Za-z][A-Za-z0-9_.\-/]{0,10}\Z")


@given(st.dictionaries(KEYS, st.integers(0, bounds.AMOUNT_MAX), min_size=1, max_size=5))
def test_pairs_and_maps_mean_the_same(amounts: dict[str, int]) -> None:
    text = ",".join(f"{key}={amount}" for key, amount in amounts.items())
    assert parse_amounts(text, "limit") == parse_amounts(amounts, "limit") == amounts


@given(st.text(max_size=30) | st.text("gpu=0123456789,-{}:", max_size=30))
def test_any_text_is_amounts_or_is_refused(text: str) -> None:
    try:
        found = parse_amounts(text, "limit")
    except Invalid as error:
        assert len(str(error)) < 300
    else:
        assert found and all(0 <= each <= bounds.AMOUNT_MAX for each in found.values())

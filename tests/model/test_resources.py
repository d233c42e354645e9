"""From what a step declares to what is counted."""

from __future__ import annotations

from decimal import Decimal
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cede.model import bounds
from cede.model.amounts import parse_memory, parse_processors
from cede.model.errors import Invalid
from cede.model.resources import ResourceSettings


def test_processors_are_computed_in_decimals() -> None:
    assert parse_processors(2.007) == 2007
    assert ceil(2.007 * 1000) == 2008  # why


def test_the_first_hundred_thousand_thousandths_are_exact() -> None:
    wrong = [milli for milli in range(100_001) if parse_processors(milli / 1000) != milli]
    assert wrong == []


@pytest.mark.parametrize(
    ("cpus", "milli"),
    [(0, 0), (1, 1000), (0.5, 500), ("0.5", 500), (Decimal("1.5"), 1500), (0.0001, 1), ("1e-9", 1)],
)
def test_processors_are_rounded_up(cpus: Any, milli: int) -> None:
    assert parse_processors(cpus) == milli


@pytest.mark.parametrize(
    ("memory", "megabytes"),
    [
        ("2GiB", 2148),
        ("8GiB", 8590),
        ("16GiB", 17180),
        ("32GiB", 34360),
        ("64GiB", 68720),
        ("512MB", 512),
        ("1GB", 1000),
        ("16GB", 16000),
        ("1KB", 1),
        ("1KiB", 1),
        ("1MiB", 2),
        ("1TB", 1_000_000),
        ("1TiB", 1_099_512),
        ("1PB", 1_000_000_000),
        ("1PiB", 1_125_899_907),
        ("0MB", 0),
    ],
)
def test_memory_is_decimal_megabytes_rounded_up(memory: str, megabytes: int) -> None:
    assert parse_memory(memory) == megabytes


def test_the_primer_of_document_001() -> None:
    settings = ResourceSettings(
        gpu_count=2, cpu_count=4, memory="16GiB", pool_resources={"tensorrt_sessions": 1}
    )
    assert settings.preemptible
    assert settings.amounts == {
        "gpu": 2,
        "mcpu": 4000,
        "memory_mb": 17180,
        "tensorrt_sessions": 1,
        "step_run": 1,
    }


@pytest.mark.parametrize(
    ("settings", "amounts"),
    {
        "nothing is a step": ({}, {}),
        "a typed field wins": ({"gpu_count": 2, "pool_resources": {"gpu": 9}}, {"gpu": 2}),
        "typed processors win": ({"cpu_count": 1, "pool_resources": {"mcpu": 9}}, {"mcpu": 1000}),
        "typed memory wins": (
            {"memory": "1GB", "pool_resources": {"memory_mb": 9}},
            {"memory_mb": 1000},
        ),
        "gpu_count 0 removes": ({"gpu_count": 0, "pool_resources": {"gpu": 9}}, {}),
        "cpu_count 0 removes": ({"cpu_count": 0, "pool_resources": {"mcpu": 9}}, {}),
        "custom keys are copied": ({"pool_resources": {"tpu": 3, "gpu": 1}}, {"tpu": 3, "gpu": 1}),
        "custom zeros ask for nothing": ({"pool_resources": {"tpu": 0}}, {}),
        "one slot, whatever is asked": ({"pool_resources": {"step_run": 7}}, {}),
    }.values(),
)
def test_the_typed_fields_override_the_map(
    settings: dict[str, Any], amounts: dict[str, int]
) -> None:
    assert ResourceSettings(**settings).amounts == {**amounts, "step_run": 1}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a negative count": ({"gpu_count": -1}, "gpu_count"),
    "a fraction of a GPU": ({"gpu_count": 1.5}, "gpu_count"),
    "a boolean count": ({"gpu_count": True}, "gpu_count"),
    "a huge count": ({"gpu_count": 2**53}, "gpu_count"),
    "a count beyond printing": ({"gpu_count": 10**5000}, "gpu_count"),
    "negative processors": ({"cpu_count": -0.5}, "cpu_count"),
    "boolean processors": ({"cpu_count": True}, "cpu_count"),
    "not a number": ({"cpu_count": float("nan")}, "cpu_count"),
    "infinity": ({"cpu_count": "Infinity"}, "cpu_count"),
    "words": ({"cpu_count": "two"}, "cpu_count"),
    "a list": ({"cpu_count": [1]}, "cpu_count"),
    "too many processors": ({"cpu_count": 2**53}, "cpu_count"),
    "an exponent beyond reason": ({"cpu_count": "1e999999"}, "cpu_count"),
    "processors beyond printing": ({"cpu_count": 10**5000}, "cpu_count"),
    "memory without a unit": ({"memory": "16"}, "memory"),
    "a fraction of memory": ({"memory": "1.5GB"}, "memory"),
    "negative memory": ({"memory": "-1GB"}, "memory"),
    "memory in bytes": ({"memory": "5B"}, "memory"),
    "memory as a number": ({"memory": 16}, "memory"),
    "lower case": ({"memory": "16gib"}, "memory"),
    "trailing space": ({"memory": "16GB "}, "memory"),
    "a newline": ({"memory": "16GB\n"}, "memory"),
    "memory beyond all": ({"memory": "999999999999999999PB"}, "memory"),
    "a bad custom amount": ({"pool_resources": {"tpu": "2"}}, "pool_resources.tpu"),
    "a bad custom key": ({"pool_resources": {"": 2}}, "pool_resources"),
    "no map": ({"pool_resources": 5}, "pool_resources"),
    "preemptible perhaps": ({"preemptible": "no"}, "preemptible"),
}


@pytest.mark.parametrize(("settings", "field"), BAD.values(), ids=BAD)
def test_an_error_names_its_field(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        ResourceSettings(**settings)
    assert caught.value.field == field
    with pytest.raises(Invalid) as caught:
        ResourceSettings.parse(settings, "settings")
    assert caught.value.field == f"settings.{field}"
    assert len(str(caught.value)) < 300


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(Invalid) as caught:
        ResourceSettings.parse({"gpus": 2})
    assert caught.value.field == "settings.gpus"
    with pytest.raises(Invalid):
        ResourceSettings.parse([])


@given(st.decimals(0, 10**9, allow_nan=False, places=6))
def test_rounding_up_never_loses_a_processor(cpus: Decimal) -> None:
    milli = parse_processors(cpus)
    assert milli - 1 < cpus * 1000 <= milli


@given(st.integers(0, 10**9), st.sampled_from(["KB", "KiB", "MB", "MiB", "GB", "GiB"]))
def test_memory_never_shrinks(number: int, unit: str) -> None:
    power = {"K": 1, "M": 2, "G": 3}[unit[0]]
    size = number * (1024 if "i" in unit else 1000) ** power
    megabytes = parse_memory(f"{number}{unit}")
    assert (megabytes - 1) * 10**6 < size <= megabytes * 10**6
    assert megabytes <= bounds.AMOUNT_MAX

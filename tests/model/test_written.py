"""JSON and YAML that people write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cede.model import written


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"gpu": 8}', {"gpu": 8}),
        ("gpu: 8", {"gpu": 8}),
        ("{gpu: 8, mcpu: 4}", {"gpu": 8, "mcpu": 4}),
        ("a: {b: 1}\nc: {b: 2}", {"a": {"b": 1}, "c": {"b": 2}}),
        ("{1: a, '1': b}", {1: "a", "1": "b"}),
        ("5m", "5m"),
        ("", None),
    ],
)
def test_json_and_yaml_are_read(text: str, value: Any) -> None:
    assert written.read(text) == value


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('{"gpu": 1, "gpu": 2}', 1, "the key 'gpu' is there twice"),
        ("gpu: 1\nmcpu: 1\ngpu: 2\n", 3, "the key 'gpu' is there twice"),
        ('{"a": {"b": 1,\n "b": 2}}', 2, "the key 'b' is there twice"),
        ("- a\n- {b: 1, 'b': 2}", 2, "the key 'b' is there twice"),
        ("{gpu: 1]", 1, "expected"),
        ("a: 2026-13-45", 1, "month"),
        ("a: !!python/object:os.x {}", 1, "could not determine a constructor"),
        ("? [1, 2]\n: 3", 1, "unhashable key"),
        ("[" * 100_000, 1, "nested deeper than 32 levels"),
        ("- " * 100_000, 1, "nested deeper than 32 levels"),
    ],
)
def test_what_cannot_be_read_has_a_line(text: str, line: int, said: str) -> None:
    with pytest.raises(written.Unreadable) as caught:
        written.read(text)
    assert caught.value.line == line
    assert said in caught.value.problem and "\n" not in caught.value.problem


NAMES = st.text("abc", min_size=1, max_size=2)


@given(st.lists(st.tuples(NAMES, st.integers()), max_size=6))
def test_a_map_is_read_whole_or_refused(pairs: list[tuple[str, int]]) -> None:
    is_json = "{" + ", ".join(f"{json.dumps(key)}: {value}" for key, value in pairs) + "}"
    is_yaml = "\n".join(f"{key}: {value}" for key, value in pairs) or "{}"
    for text in (is_json, is_yaml):
        if len(dict(pairs)) == len(pairs):
            assert written.read(text) == dict(pairs)
        else:
            with pytest.raises(written.Unreadable, match="is there twice"):
                written.read(text)

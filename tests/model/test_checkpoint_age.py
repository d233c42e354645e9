"""The engine and the library for applications agree on which checkpoint is newer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cede.checkpoint import shelf
from cede.model.stopping import age

IDS = st.from_regex(r"[0-9][0-9A-Za-z_-]{0,20}", fullmatch=True)


@given(IDS, IDS)
def test_both_sort_alike(one: str, other: str) -> None:
    assert (age(one) < age(other)) == (shelf.age(one) < shelf.age(other))


def test_numbers_count_as_numbers() -> None:
    assert age("9-1") < age("10-1") < age("10-2") < age("000011-1")

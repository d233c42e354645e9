"""What a machine may say of itself."""

from __future__ import annotations

import pytest

from cede.model.errors import Invalid
from cede.model.node import parse_group

PATHS = ["", "rack-3", "spine-1/rack-3", "hall 2/row a/rack.7", "1/2/3/4/5/6/7/8", "x" * 128]


@pytest.mark.parametrize("path", PATHS)
def test_a_group_is_a_path_or_nothing(path: str) -> None:
    assert parse_group(path) == path


WRONG = {
    **dict.fromkeys(
        ["/", "/a", "a/", "a//b", " a", "a/ b", "a /b"], "write it like spine-1/rack-3"
    ),
    "1/2/3/4/5/6/7/8/9": "has 9 parts; at most 8",
    "x" * 129: "at most 128 characters",
    "a/\u202eb": "printable",
    7: "must be text",
    None: "must be text",
}


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_group_that_is_no_path_is_refused_with_the_fix(value: object) -> None:
    with pytest.raises(Invalid, match=WRONG[value]) as caught:
        parse_group(value, "group")
    assert caught.value.field == "group"

"""The arrays in rows keep their form: databases are full of them."""

from __future__ import annotations

from typing import Any

import pytest

from cede.model.allocation import Member, Phase
from cede.model.policy import Home
from cede.model.request import Earmark, Preemptions, Retry, Withhold
from cede.model.shape import Shape, Topology
from cede.model.stopping import (
    Ask,
    Checkpoint,
    Pin,
    Protocol,
    Resume,
    Saved,
    StopPolicy,
    StopProgress,
)
from cede.model.terms import Terms
from cede.model.work import Work
from cede.store import term_rows
from cede.store.arrays import array_of, from_array
from cede.store.json_text import decode, encode

# As commit a57e475 wrote them; what a field was added to since, with that field.
WRITTEN: list[tuple[Any, str]] = [
    (Retry(3, 1000, 2, Preemptions.FREE), '[3,1000,2,"free"]'),
    (Earmark("p", "q", 4, (("n", 2),)), '["p","q",4,[["n",2]]]'),
    (Withhold("p", 9, (("n", 1),), 5), '["p",9,[["n",1]],5]'),
    (
        Shape({"gpu": 1}, 2, 1, {"zone": "a"}, "f", Topology.SPREAD),
        '[{"gpu":1},2,1,{"zone":"a"},"f","spread"]',
    ),
    (
        StopPolicy(Checkpoint.AUTO, Protocol.GRPC, 1, 2, True, Resume.REQUIRED, 3),
        '["auto","grpc",1,2,true,"required",3]',
    ),
    (Work(("a", "b"), {"X": "1"}, "/d", "u"), '[["a","b"],{"X":"1"},"/d","u"]'),
    (Saved("c", 7, 8, 9, 1, ("x", "y"), "b"), '["c",7,8,9,1,["x","y"],"b"]'),
    (Pin(("x",), None), '[["x"],null]'),
    (
        Member(
            0, "n", {"gpu": ("0", "1")}, Phase.ENDED, "s", 3, "c", ("a",), True, 4, (5, 6), True
        ),
        '[0,"n",{"gpu":["0","1"]},"ended","s",3,"c",["a"],true,4,[5,6],true]',
    ),
    (StopProgress(1, 2, 3, True, False, 4, True, False, 5), "[1,2,3,true,false,4,true,false,5]"),
    (Ask(1, 2, 3, True, None, 6), "[1,2,3,true,null,6]"),
    (Home({}, ("n1", "n2")), '[{},["n1","n2"]]'),
]


@pytest.mark.parametrize(("value", "text"), WRITTEN, ids=lambda each: type(each).__name__)
def test_an_array_is_as_it_was(value: Any, text: str) -> None:
    assert encode(array_of(value)) == text
    assert from_array(type(value), decode(text)) == value


def test_what_an_old_array_does_not_have_is_usual() -> None:
    old = from_array(StopPolicy, ["auto", "signal", 1, 2, False])
    assert old == StopPolicy(Checkpoint.AUTO, timeout=1, deferral_max=2)
    assert from_array(Withhold, ["p", 9, [["n", 1]]]) == Withhold("p", 9, (("n", 1),))


def test_the_last_ones_are_left_out_while_they_are_usual() -> None:
    assert array_of(Withhold("p", 9), optional=2) == ["p", 9]
    assert array_of(Withhold("p", 9, (("n", 1),)), optional=2) == ["p", 9, (("n", 1),)]


def test_terms_are_as_they_were() -> None:
    assert term_rows.terms_text(Terms(7, tenant="bio")) is None
    assert term_rows.terms_text(Terms(limit={"gpu": 1})) == '[false,{"gpu":1},{}]'
    assert term_rows.terms_text(Terms(weight=2.5)) == "[false,{},{},2.5]"
    assert term_rows.terms_from(7, "bio", '[true,{"gpu":4},{}]') == Terms(
        7, True, "bio", {"gpu": 4}
    )

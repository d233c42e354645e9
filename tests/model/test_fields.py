"""A field is declared once, and every reader and writer of it goes by that."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from cede.model import fields
from cede.model.errors import Invalid, Malformed
from cede.model.fields import (
    Count,
    Duration,
    Flag,
    Kind,
    Labels,
    Name,
    Quantities,
    Ratio,
    Text,
    Word,
    changed,
    deciding,
    declared,
    fields_of,
    read,
    said,
    shown,
    written,
)
from cede.model.policy import Policy
from cede.model.request import Request, Retry
from cede.model.shape import Shape
from cede.model.stopping import StopPolicy
from cede.model.tenant import Tenant
from cede.model.terms import Terms
from cede.server.api import declared as api
from cede.store import own_columns

SOURCE = Path(fields.__file__).parents[1]


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Part:
    inside: int = 0
    time: int | None = declared(Duration(5_000), "A time.", None, name="class")
    colour: Colour = declared(Word(Colour), "A colour.", Colour.RED)
    note: str = declared(Text(5), "A note.", "", decides=False, example="hi")
    counts: dict[str, int] = declared(Quantities(), "Counts.", default_factory=dict)
    loud: bool = declared(Flag(), "Loud.", False)
    fast: bool = declared(Flag(), "Fast.", True)
    other: list[int] = field(default_factory=list)


GIVEN = {
    "class": 1.5,
    "colour": "blue",
    "note": "hey",
    "counts": {"gpu": 1},
    "loud": True,
    "fast": False,
}
MADE = Part(time=1500, colour=Colour.BLUE, note="hey", counts={"gpu": 1}, loud=True, fast=False)


def test_what_is_given_is_read_and_shown_again() -> None:
    assert changed(Part(), GIVEN) == MADE
    assert shown(MADE) == GIVEN
    assert read(Part, {"note": None, "unknown": 1}) == {}


def test_what_changes_nothing_is_the_usual_itself() -> None:
    usual = Part()
    assert changed(usual, {}) is usual
    assert changed(usual, {"colour": "red", "note": ""}) is usual


def test_only_what_decides_and_is_not_usual_is_said() -> None:
    assert said(MADE) == {name: value for name, value in GIVEN.items() if name != "note"}
    assert said(Part()) == {}
    assert deciding(Part) == ("class", "colour", "counts", "loud", "fast")


def test_keywords_become_a_body() -> None:
    given = {"class_": "5s", "colour": "blue", "loud": False, "fast": False, "note": None}
    assert written(given, Part) == {"class": 5, "colour": "blue", "fast": False}
    with pytest.raises(TypeError, match="unknown keyword 'colur'; did you mean colour"):
        written({"colur": "blue"}, Part)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Flag(), 1),
        (Text(3), "four"),
        (Text(9), "a\nb"),
        (Text(9), 7),
        (Name(), "a/b"),
        (Word(Colour), "green"),
        (Duration(1_000), 2),
        (Duration(), True),
        (Count(1, 5), 6),
        (Count(1, 5), True),
        (Count(1, 5), 1.0),
        (Ratio(0, 1), 2),
        (Quantities(), {"gpu": 1.0}),
        (Labels(), {"a": 1}),
        (Labels(of_nodes=True), {"a b": "c"}),
    ],
    ids=str,
)
def test_what_is_no_such_value_is_refused_by_its_name(kind: Kind, value: Any) -> None:
    with pytest.raises(Invalid) as found:
        kind.parse(value, "it")
    assert found.value.field.split(".")[0] == "it"


def test_what_is_no_class_at_all_cannot_be_read() -> None:
    with pytest.raises(Malformed):
        Count(0, 10, malformed=True).parse("7", "class")


def test_every_kind_has_its_place_in_every_layer() -> None:
    types = [each for each in vars(fields).values() if isinstance(each, type)]
    kinds = {each for each in types if issubclass(each, Kind) and each is not Kind}
    assert set(api._SENT) == set(api._SHOWN) == set(own_columns._STORED) == kinds


@pytest.mark.parametrize("part", [Policy, Request, Retry, Shape, StopPolicy, Tenant, Terms])
def test_every_declared_field_has_a_sentence_and_a_default_that_can_be_written(part: type) -> None:
    assert fields_of(part)
    for each in fields_of(part):
        assert each.sentence.endswith("."), each
        if each.shown_default not in (None, {}):  # an empty guarantee is one of type none
            assert each.kind.parse(each.shown_default, each.name) == each.default
        if each.example is not None:
            each.kind.parse(each.example, each.name)


def test_a_field_is_named_by_the_model_a_migration_and_the_command_line_only() -> None:
    """The codecs go by the declaration: none of them names this field of a request. The bridge
    names the comment of a Slurm job.
    """
    named = {
        path.relative_to(SOURCE).parts[0]
        for path in SOURCE.rglob("*.py")
        if "comment" in _names_in(path.read_text()) and "migrations" not in path.parts
    }
    assert named - {"bridge"} == {"model", "cli"}


def _names_in(text: str) -> set[Any]:
    """What a module names in code: attributes, keywords, and texts of one word."""
    if "comment" not in text:
        return set()
    tree = list(ast.walk(ast.parse(text)))
    return {
        *(each.value for each in tree if isinstance(each, ast.Constant)),
        *(each.attr for each in tree if isinstance(each, ast.Attribute)),
        *(each.arg for each in tree if isinstance(each, ast.keyword)),
        *(each.id for each in tree if isinstance(each, ast.Name)),
    }


def test_no_two_fields_of_a_request_have_one_name() -> None:
    names = [each.name for part in (Request, Shape, StopPolicy, Terms) for each in fields_of(part)]
    assert len(names) == len(set(names))

"""What the pages say of fair share is what the code does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from cede.engine.fair.settings import FairSettings
from cede.engine.fair.shares import compute
from cede.engine.fair.tree import Element, Integral, Kind, Mode, Options, Tree
from cede.model.policy import OF_POLICY
from cede.model.terms import OF_REQUEST
from tests.docs.names import rows

DOCS = Path(__file__).parents[2] / "docs"
EXPLANATION = (DOCS / "explanation" / "fair-share.md").read_text()
REFERENCE = (DOCS / "reference" / "fair-share-settings.md").read_text()


def policy(name: str, **more: Any) -> Element:
    return Element(name, Kind.POLICY, **more)


def request(name: str, parent: str, gpu: int, cpu: int, submitted: int = 0) -> Element:
    return Element(name, parent=parent, demand={"gpu": gpu, "cpu": cpu}, submitted=submitted)


WORKED = Tree(
    {"gpu": 100, "cpu": 100},
    (
        policy("research", guarantee={"gpu": 30}),
        request("r1", "research", 60, 30),
        request("r2", "research", 10, 5),
        policy("product", weight=2),
        request("p1", "product", 40, 80),
        policy("batch", limit={"gpu": 20}, mode=Mode.FIFO),
        request("b1", "batch", 15, 15, 1),
        request("b2", "batch", 15, 15, 2),
    ),
)


def test_the_worked_example_comes_true() -> None:
    shares = compute(WORKED, Options(main="gpu"))
    table = EXPLANATION.split("| element | gpu | cpu |")[1].split("\n\n")[0]
    shown = {name: (float(gpu), float(cpu)) for name, gpu, cpu in rows(table, r"[a-z]+\d?")}
    assert set(shown) == {each.id for each in WORKED.elements}
    for name, share in shown.items():
        assert shares[name].total == pytest.approx(share, abs=1e-9)
    assert shares["research"].strong[0] == pytest.approx(0.3)
    assert shares["research"].weighed[0] == pytest.approx(0.25)


def test_a_guarantee_is_added_to_as_the_page_says() -> None:
    tree = Tree(
        {"gpu": 100},
        (
            policy("a", guarantee={"gpu": 60}),
            policy("b", guarantee={"gpu": 20}),
            request("x", "a", 100, 0),
            request("y", "b", 100, 0),
        ),
    )
    shares = compute(tree, Options(main="gpu"))
    assert [shares[each].total[0] for each in "ab"] == pytest.approx([0.7, 0.3])


def default(of: Field[Any]) -> str:
    value = of.default if of.default is not MISSING else of.default_factory()  # type: ignore[misc]
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return ", ".join(value)
    return "{}" if isinstance(value, Mapping) else str(value)


def test_every_setting_stands_in_the_table_with_its_default_and_who_may_set_it() -> None:
    table = [row for row in rows(REFERENCE, r"`\w+`") if len(row) == 4]
    shown = {name.strip("`"): (value, by) for name, value, by, _ in table}
    assert shown == {
        each.name: (
            default(each),
            ", ".join(
                [
                    "pool",
                    *(["policy"] if each.name in OF_POLICY else []),
                    *(["request"] if each.name in OF_REQUEST else []),
                ]
            ),
        )
        for each in fields(FairSettings)
    }


NOT_SET = {"id", "kind", "parent", "demand", "usage", "gang", "submitted", "pending", "integral"}


def test_every_option_and_field_stands_in_a_table_with_its_default() -> None:
    table = [row for row in rows(REFERENCE, r"`\w+`") if len(row) == 3]
    shown = {(name.strip("`"), value) for name, value, _ in table}
    known = [each for each in fields(Options) if each.name != "seconds"]
    known += [each for each in fields(Element) if each.name not in NOT_SET]
    known += fields(Integral)
    assert shown == {(each.name, default(each)) for each in known}

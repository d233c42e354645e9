"""The cases of another system, read into our trees. Keys of every vector: `KEYS`, in order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cede.engine.fair.tree import Element, Integral, IntegralType, Kind, Mode, Options, Tree, Volume

CASES: dict[str, Any] = json.loads((Path(__file__).parent / "cases.json").read_text())
KEYS: tuple[str, ...] = tuple(CASES["keys"])


def named(section: str) -> list[Any]:
    return CASES[section]


def element(record: dict[str, Any]) -> Element:
    fields = dict(record)
    fields["kind"] = Kind(fields.get("kind", "request"))
    fields["mode"] = Mode(fields.get("mode", "fair_share"))
    if "integral" in fields:
        integral = dict(fields["integral"])
        fields["integral"] = Integral(**integral | {"type": IntegralType(integral["type"])})
    return Element(**fields)


def totals(amounts: dict[str, float]) -> dict[str, float]:
    """Every key in order, also those of which there is nothing."""
    return {key: amounts.get(key, 0) for key in KEYS}


def tree_of(case: dict[str, Any], volumes: dict[str, Volume] | None = None) -> Tree:
    elements = tuple(element(each) for each in case["elements"])
    return Tree(totals(case["totals"]), elements, volumes or {})


def options_of(case: dict[str, Any], improved: bool) -> Options:
    return Options(
        main="cpu",
        improved=improved,
        gang_steps=case.get("gang_steps", False),
        seconds=case.get("seconds"),
    )


def vector(expected: Sequence[float] | dict[str, float]) -> list[float | None]:
    """An expected vector; None where only some keys are known."""
    if isinstance(expected, dict):
        return [expected.get(key) for key in KEYS]
    return list(expected)

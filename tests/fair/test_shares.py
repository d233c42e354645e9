"""Fair shares are the numbers another system's tests expect, to a millionth."""

from __future__ import annotations

from typing import Any

import pytest

from cede.engine.fair.shares import Shares, Solver, compute
from tests.fair.cases import KEYS, named, options_of, totals, tree_of, vector

FIELDS = {"weight_proportional": "weighed"}
EXACT = 1e-6


def differences(shares: Shares, expected: dict[str, Any]) -> list[str]:
    found = []
    for element_id, parts in expected.items():
        for part, values in parts.items():
            got = getattr(shares[element_id], FIELDS.get(part, part))
            for key, value, actual in zip(KEYS, vector(values), got, strict=True):
                if value is not None and abs(value - actual) > EXACT:
                    found.append(f"{element_id} {part} {key}: {actual}, not {value}")
    return found


BOTH = [(case, improved) for case in named("fair_share") for improved in case["improved"]]


@pytest.mark.parametrize(
    ("case", "improved"), BOTH, ids=[f"{case['name']}-{improved}" for case, improved in BOTH]
)
def test_shares_are_those_of_the_case(case: dict[str, Any], improved: bool) -> None:
    shares = compute(tree_of(case), options_of(case, improved))
    assert differences(shares, case["expected"]) == []


@pytest.mark.parametrize("improved", [False, True])
@pytest.mark.parametrize("case", named("sequence"), ids=lambda case: case["name"])
def test_what_was_saved_up_is_given_later(case: dict[str, Any], improved: bool) -> None:
    volumes = {}
    for step in case["steps"]:
        step = {"totals": case["totals"]} | step
        shares = compute(tree_of(step, volumes), options_of(step, improved))
        volumes = dict(shares.volumes)
        assert differences(shares, step["expected"]) == []


@pytest.mark.parametrize("case", named("inference"), ids=lambda case: case["name"])
def test_guarantees_are_inferred_from_the_main_key(case: dict[str, Any]) -> None:
    solver = Solver(tree_of(case), options_of(case, False))
    for element_id, amounts in case["inferred"].items():
        for key, amount in amounts.items():
            # The other system rounds down to whole units.
            assert solver.inferred[element_id][key] == pytest.approx(
                amount, abs=case.get("tolerance", 1e-6)
            )
    for element_id, parts in case.get("share", {}).items():
        guarantee = dict(zip(KEYS, solver.share(element_id).guarantee, strict=True))
        assert {key: guarantee[key] for key in parts} == pytest.approx(parts)
    assert solver.inferred[""] == totals(case["totals"])

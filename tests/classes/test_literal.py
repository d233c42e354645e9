"""The oracle answers as the system does whose algorithm it is."""

from __future__ import annotations

import pytest

from tests.classes.cases import PREEMPTIONS, Case
from tests.classes.literal import choose


@pytest.mark.parametrize("case", PREEMPTIONS, ids=lambda case: case.name)
def test_the_victims_are_those_of_the_case(case: Case) -> None:
    found = choose(
        case.holders, case.preemption_class, case.nodes, case.max_victims, case.threshold
    )
    assert found.victims == case.victims
    assert found.costs == case.costs
    if case.victims is None:
        assert len(found.freed) == case.can_free < case.nodes
    else:
        assert found.freed == case.freed


def test_there_are_cases_of_both_kinds() -> None:
    assert len(PREEMPTIONS) == 178
    assert sum(case.victims is None for case in PREEMPTIONS) == 77
    assert max(len(case.victims or []) for case in PREEMPTIONS) > 3

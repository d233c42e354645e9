"""The audit shares no code with the engine that it checks, and recounts what the engine decides."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cede.engine.audit import groups as audit_groups
from cede.engine.fair.groups import Due, Group, Held, groups_of
from cede.engine.fair.settings import FairSettings
from cede.engine.ledger.task_groups import Claim
from tests.fair.test_imports import imports

ENGINE = Path(__file__).parents[2] / "src" / "cede" / "engine"
# The tables that are audited, and what the audit itself is made of.
ALLOWED = ("cede.model.", "cede.engine.state.state", "cede.engine.audit")


@pytest.mark.parametrize("module", ["audit", "groups"])
def test_the_audit_imports_the_model_and_the_state_only(module: str) -> None:
    found = [
        each for each in imports((ENGINE / "audit" / f"{module}.py").read_text()) if "cede" in each
    ]
    assert [each for each in found if not each.startswith(ALLOWED)] == []
    assert bool(found) is (module == "audit")


def test_an_import_of_the_engine_is_found() -> None:
    [found] = imports("from cede.engine.fair.groups import groups_of")
    assert not found.startswith(ALLOWED)


KEYS = ("gpu", "mcpu")
SAFETY = {Group.NON_PREEMPTIBLE: 2, Group.AGGRESSIVELY_PREEMPTIBLE: 1, Group.PREEMPTIBLE: 0}
amounts = st.fixed_dictionaries({}, optional={key: st.integers(0, 5) for key in KEYS})
shares = st.tuples(*[st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.5, 0.7, 1.0])] * len(KEYS))
claims = st.builds(
    Claim,
    st.builds(
        Due, shares, shares, st.fixed_dictionaries({key: st.integers(0, 20) for key in KEYS})
    ),
    st.builds(
        FairSettings,
        preemption_satisfaction_threshold=st.sampled_from([0.5, 1.0, 1.5]),
        aggressive_preemption_satisfaction_threshold=st.sampled_from([0.0, 0.2, 0.5]),
        consider_allocation_on_fair_share_bound_preemptible=st.booleans(),
        non_preemptible_resource_usage_threshold=amounts,
    ),
)


@given(st.lists(amounts, max_size=6), claims)
def test_two_ways_of_counting_agree(several: list[dict[str, int]], claim: Claim) -> None:
    held = [Held(str(n), each, n) for n, each in enumerate(several)]
    mine = [audit_groups.Held(str(n), each, n) for n, each in enumerate(several)]
    decided = [SAFETY[each] for each in groups_of(held, claim.due, claim.settings)]
    assert audit_groups.safety(mine, claim) == decided

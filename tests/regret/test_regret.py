"""Random pools with fixed seeds run to rest without regret; `make regret` runs many more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cede.engine.state.state import State
from cede.engine.steps import preempt
from cede.model.plan import Plan

from .measure import Regret, measure, of_snapshot
from .pools import KINDS

FOUND = sorted((Path(__file__).parent / "found").glob("*.yaml"))

# Pools in which something was wrong once, and what.
ONCE = {
    ("quota", 22): "a promise was cut, and its victims stopped for a name that never ran",
    ("quota", 86): "a victim came back behind others of its share, and would not have had to stop",
    ("quota", 328): "non-preemptible work took a promise of its own policy once it was granted",
    ("quota", 663): "what the limit of a policy left counted only when its victim had left",
    ("quota", 915): "a taking defeated itself: its victim would have taken everything back",
    ("trees", 290): "a promise under a limit above was taken as soon as it was granted",
    ("trees", 955): "the same, of non-preemptible work of its own policy",
    (
        "nodes",
        58,
    ): "a victim counted as told in the pass that stopped it, and was not spared",
    ("nodes", 148): "the same",
    ("classes", 4): "a victim came back and stopped somebody lower, who would have been enough",
    ("classes", 35): "the same, in exchange for a place in its share",
    ("classes", 950): "a lower class of its policy was promised what a victim would take back",
}


@pytest.mark.parametrize("kind", KINDS)
def test_pools_come_to_rest_without_regret(kind: str) -> None:
    for seed in range(12):
        assert measure(kind, seed).none, (kind, seed)


@pytest.mark.parametrize(("kind", "seed"), ONCE, ids=[f"{kind} {seed}" for kind, seed in ONCE])
def test_pools_that_regretted_something_once(kind: str, seed: int) -> None:
    assert measure(kind, seed).none


# Pools in which stops and promises, each right by itself, come to nothing together.
REHEARSED = [
    ("trees", 1361),
    ("classes", 1882),
    ("classes", 1943),
    ("classes", 2342),
    ("fair trees", 812),
    ("fair keys", 2754),
    ("nodes", 253),
    ("nodes", 748),
]


@pytest.mark.parametrize(("kind", "seed"), REHEARSED)
def test_a_rehearsal_finds_what_comes_to_nothing(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert measure(kind, seed).none
    monkeypatch.setattr("cede.engine.decide.regrets", lambda *_: set())
    assert not measure(kind, seed).none


@pytest.mark.parametrize("path", FOUND, ids=[each.stem for each in FOUND])
def test_what_was_found(path: Path) -> None:
    found = of_snapshot(yaml.safe_load(path.read_text()))
    assert found.victims and found.none


def test_the_measure_finds_what_is_granted_and_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """With grants that are not taken back, and victims that are not spared."""

    def forgets(state: State, plan: Plan, pool_ids: list[str]) -> None:
        plan.granted.clear()
        real(state, plan, pool_ids)

    real = preempt.preempt_all
    monkeypatch.setattr("cede.engine.decide.preempt_all", forgets)
    monkeypatch.setattr("cede.engine.decide.spare", lambda state, plan: False)
    monkeypatch.setattr("cede.engine.decide.regrets", lambda *_: set())
    found: list[Any] = [of_snapshot(yaml.safe_load(each.read_text())) for each in FOUND]
    assert any(each.in_one_pass for each in found)
    assert any(each.for_nothing for each in found)
    assert not Regret(left_out=("w",)).none


def test_the_measure_finds_who_stops_on_nodes_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """With victims that are not spared."""
    monkeypatch.setattr("cede.engine.decide.spare", lambda state, plan: False)
    monkeypatch.setattr("cede.engine.decide.regrets", lambda *_: set())
    assert measure("nodes", 58).for_nothing

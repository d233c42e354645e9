"""Whom `plan` stops in the cases of another system: as it decides, and then by our defaults.

As it decides, its answer is a set that we could have taken. Ours is legal, enough, and never
dearer; and where it finds none although there is one, ours is found. By the defaults the outcome is
another in some cases, each by a rule that has a name.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from cede.engine.admin.presets import PRESETS
from tests.classes.cases import PREEMPTIONS, Case
from tests.classes.planned import LITERAL, Outcome, plan, prices
from tests.docs.names import rows

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "differences.md"
BY_NAME = {case.name: case for case in PREEMPTIONS}

# Nobody can ask for no nodes, and no victims at all cannot be said: 0 is as many as it takes.
NOT_SAID = {"edge_request_0_nodes", "edge_max_victims_0"}
# Its greedy search takes what is cheap, runs out of victims, and does not see who would be enough.
GREEDY_FAILS = {"rand_020", "rand_088", "rand_094", "rand_132", "rand_208", "rand_281"}

# What the defaults change, by the rules that alone explain it.
BY_RULE: dict[tuple[str, ...], str] = {
    ("max_victims",): "feature_class_6_vs_3 feature_cascade edge_max_victims_1 rand_095",
    ("near_completion_threshold",): (
        "edge_remaining_frac_1.0 edge_remaining_sub_minute_walltime"
        " edge_remaining_walltime_90s_el_60s rand_001 rand_094 rand_098 rand_191 rand_251 rand_283"
    ),
    ("count_free",): "rand_018 rand_034 rand_202 rand_258",
    ("count_free", "wait_first"): "rand_072 rand_127",
    ("burst_discount",): "edge_burst_changes_order rand_208",
    ("protect_unsaved",): "rand_008 rand_048",
    ("wait_first",): (
        "rand_016 rand_020 rand_059 rand_065 rand_071 rand_084 rand_085 rand_102"
        " rand_103 rand_115 rand_132 rand_154 rand_157 rand_164 rand_170 rand_176 rand_181"
        " rand_201 rand_204 rand_219 rand_226 rand_239 rand_256 rand_264 rand_267 rand_270"
        " rand_276 rand_277 rand_290 rand_296 rand_298 rand_299"
    ),
    ("burst_discount", "wait_first"): "rand_144",
}
DIFFERS = {name: rules for rules, names in BY_RULE.items() for name in names.split()}


@cache
def literally(name: str) -> Outcome:
    return plan(BY_NAME[name], LITERAL)


def by_default(case: Case, *rules: str) -> set[int] | None:
    """Who is stopped if these rules are as by default, and the others as in the case."""
    defaults = PRESETS["classes"]
    found = plan(case, {**LITERAL, **{rule: defaults.shown(rule) for rule in rules}})
    return None if found.victims is None else set(found.victims)


@pytest.mark.parametrize("name", [each for each in BY_NAME if each not in NOT_SAID])
def test_the_victims_are_legal_enough_and_no_dearer(name: str) -> None:
    case, found = BY_NAME[name], literally(name)
    if found.victims is None:
        assert case.victims is None
        return
    assert case.victims is not None or name in GREEDY_FAILS
    holders = {each.id: each for each in case.holders}
    chosen = [holders[each] for each in found.victims]
    assert len(chosen) <= case.max_victims
    assert all(each.preemption_class < case.preemption_class for each in chosen)
    assert all(each.running and not each.sensitive for each in chosen)
    freed = {node for each in chosen for node in each.nodes}
    assert len(freed) >= case.nodes
    for one in chosen:  # nobody is stopped in vain
        assert len(freed - set(one.nodes)) < case.nodes
    if case.victims is not None:
        cost = prices(case, burst=True)
        ours = sum(cost[each] for each in found.victims)
        assert ours <= sum(cost[each] for each in case.victims) + 1e-9


def is_coming(case: Case) -> bool:
    """Whether those who leave free enough."""
    return sum(len(each.nodes) for each in case.holders if not each.running) >= case.nodes > 0


@pytest.mark.parametrize("name", [name for name, case in BY_NAME.items() if is_coming(case)])
def test_what_is_on_its_way_is_not_freed_by_victims(name: str) -> None:
    """A holder that is leaving for nobody in particular changes nothing either."""
    case, before = BY_NAME[name], literally(name)
    assert plan(case, LITERAL, promised=False).victims == before.victims


def test_a_set_is_found_where_the_greedy_search_fails() -> None:
    failed = {name for name, case in BY_NAME.items() if case.victims is None} - NOT_SAID
    assert {name for name in failed if literally(name).victims is not None} == GREEDY_FAILS


def test_ours_is_cheaper_in_some_cases() -> None:
    """So the comparison of costs is one."""
    cheaper = 0
    for name, case in BY_NAME.items():
        if name not in NOT_SAID and case.victims is not None:
            cost, found = prices(case, burst=True), literally(name).victims or []
            cheaper += sum(map(cost.__getitem__, found)) < sum(map(cost.__getitem__, case.victims))
    assert cheaper == 16


@pytest.mark.parametrize("name", [each for each in BY_NAME if each not in NOT_SAID])
def test_by_default_only_named_rules_change_the_outcome(name: str) -> None:
    case, before = BY_NAME[name], literally(name)
    after = by_default(case, *LITERAL, "max_victims")
    same = after == (None if before.victims is None else set(before.victims))
    assert same == (name not in DIFFERS)
    if not same:
        assert by_default(case, *DIFFERS[name]) == after


def test_the_page_counts_the_cases_of_each_rule() -> None:
    part = PAGE.read_text().split("## Classes: document 004")[1].split("\n## ")[0]
    shown = {row[0].strip("`"): int(row[1]) for row in rows(part, r"`[a-z_]+`") if len(row) == 3}
    assert shown == Counter(rule for rules in DIFFERS.values() for rule in rules)

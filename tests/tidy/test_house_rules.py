"""Every file keeps the house rules, and every rule has been seen to fire."""

from __future__ import annotations

import pytest

from cede.engine.admin.presets import PRESETS
from tests.tidy import rules
from tests.tidy.tree import text_of, tracked_files

ENGINE = "src/cede/engine/decide.py"
MODEL = "src/cede/model/amounts.py"
STORE = "src/cede/store/journal.py"

# The rule, a file it holds for, and a line there that breaks it.
FIRES: dict[str, tuple[rules.Rule, str, str]] = {
    "I/O in the engine": (rules.the_core_is_pure, ENGINE, "import os"),
    "I/O in the model": (rules.the_core_is_pure, MODEL, "from urllib.request import urlopen"),
    "a loop over set()": (
        rules.the_engine_iterates_in_order, ENGINE, "for x in set(a):\n    pass"),
    "a loop over a set literal": (
        rules.the_engine_iterates_in_order, ENGINE, "for x in {1, 2}:\n    pass"),
    "a comprehension over a union": (
        rules.the_engine_iterates_in_order, ENGINE, "b = [x for x in set(a) | other]"),
    "a list made of a set": (rules.the_engine_iterates_in_order, ENGINE, "b = list(set(a))"),
    "a float literal in the model": (rules.amounts_are_integers, MODEL, "x = 0.5"),
    "float() in the engine": (rules.amounts_are_integers, ENGINE, "x = float(y)"),
    "a long function": (rules.functions_stay_small, STORE, "def f():\n" + "    x = 1\n" * 60),
    "a long async function": (
        rules.functions_stay_small, STORE, "async def f():\n" + "    x = 1\n" * 60),
    **{
        f"the place {place[:4]}..": (rules.no_place_of_origin, "docs/a.md", f"see {place}x")
        for place in rules.PLACES
    },
    "a preset by name": (
        rules.the_engine_does_not_know_its_preset, ENGINE, "a = p.preset == 'fair_share'"),
    **{
        f"the preset {preset}, however it is asked for: {source[:9]}..": (
            rules.the_engine_does_not_know_its_preset, ENGINE, source.replace("NAME", preset))
        for preset in PRESETS
        for source in (
            "if pool.preset == 'NAME':\n    pass",
            "a = pool.preset in ('other', 'NAME')",
            "a = {'NAME': 1}[pool.preset]",
            "match pool.preset:\n    case 'NAME':\n        pass",
        )
    },
    "a preset by member": (
        rules.the_engine_does_not_know_its_preset, ENGINE, "a = p is Preset.CLASSES"),
    **{
        f"a docstring that begins with {word}": (
            rules.docstrings_name_the_component, ENGINE,
            f'def f():\n    """{word}: what is held."""')
        for word in rules.RIDDLES
    },
    "a module that begins with Who": (
        rules.docstrings_name_the_component, ENGINE, '"""Who may be stopped."""'),
    "a class that begins with What": (
        rules.docstrings_name_the_component, MODEL, 'class A:\n    """What is held."""'),
}  # fmt: skip

# The rule, a file, and a line there that must pass.
SILENT: dict[str, tuple[rules.Rule, str, str]] = {
    "a value from the standard library": (
        rules.the_core_is_pure, MODEL, "from dataclasses import dataclass"),
    "a sorted set": (
        rules.the_engine_iterates_in_order, ENGINE, "for x in sorted(set(a)):\n    pass"),
    "a share": (rules.amounts_are_integers, "src/cede/engine/rights/cover.py", "x = 0.5"),
    "a price": (rules.amounts_are_integers, "src/cede/engine/rights/price.py", "x = float(y)"),
    "a function of the largest size": (
        rules.functions_stay_small, STORE, "def f():\n" + "    x = 1\n" * 59),
    "the presets themselves": (
        rules.the_engine_does_not_know_its_preset,
        "src/cede/engine/admin/presets.py", "a = 'quota'"),
    "a word in a sentence": (
        rules.the_engine_does_not_know_its_preset, ENGINE, "a = 'over its quota'"),
    "a docstring that names the thing": (
        rules.docstrings_name_the_component, ENGINE, '"""Whether a holder may be stopped."""'),
}  # fmt: skip

RULES: list[rules.Rule] = [
    rules.the_core_is_pure,
    rules.the_engine_iterates_in_order,
    rules.amounts_are_integers,
    rules.functions_stay_small,
    rules.no_place_of_origin,
    rules.the_engine_does_not_know_its_preset,
    rules.docstrings_name_the_component,
]


@pytest.mark.parametrize("case", FIRES)
def test_a_rule_fires_on(case: str) -> None:
    rule, path, source = FIRES[case]
    offences = list(rule(path, source))
    assert offences, f"{rule.__name__} did not see it"
    assert all(offence.path == path for offence in offences)


@pytest.mark.parametrize("case", SILENT)
def test_a_rule_is_silent_about(case: str) -> None:
    rule, path, source = SILENT[case]
    assert list(rule(path, source)) == []


def test_the_rule_about_presets_knows_all_of_them() -> None:
    assert set(rules.PRESETS) == set(PRESETS)


def test_every_rule_has_been_seen_to_fire() -> None:
    assert {rule for rule, _, _ in FIRES.values()} == set(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_file_keeps(rule: rules.Rule) -> None:
    offences = [
        str(offence)
        for path in tracked_files()
        if (source := text_of(path)) is not None
        for offence in rule(path, source)
    ]
    assert not offences, "\n" + "\n".join(offences)

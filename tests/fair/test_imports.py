"""Fair shares know the model and nothing else, so that a program can compute them alone."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "cede" / "engine" / "fair"


def imports(source: str) -> list[str]:
    """Every module that a source imports, wherever in it."""
    modules = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules.append(node.module or "")
    return modules


def strangers(source: str) -> list[str]:
    return [
        each
        for each in imports(source)
        if each.split(".")[0] not in sys.stdlib_module_names
        and not each.startswith(("cede.model", "cede.engine.fair"))
    ]


def test_fair_shares_import_the_model_only() -> None:
    found = {path.name: strangers(path.read_text()) for path in sorted(PACKAGE.glob("*.py"))}
    assert len(found) > 5
    assert not [name for name, modules in found.items() if modules]


def test_a_stranger_is_found() -> None:
    assert strangers("import numpy\nfrom cede.engine.state.state import State") == [
        "numpy",
        "cede.engine.state.state",
    ]

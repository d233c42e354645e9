"""The house rules that ruff cannot say: functions over (path, source) that yield what is wrong.

What ruff can say stands in pyproject.toml.

A path is relative to the root, with slashes. Rules take the source as an argument and not from the
disk, so that each can be fed a bad sample: a rule that has never fired proves nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Offence:
    path: str
    line: int
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.advice}"


Rule = Callable[[str, str], Iterator[Offence]]

CORE = ("src/cede/model/", "src/cede/engine/")
FUNCTION_LINES_MAX = 60


@cache
def _tree(path: str, source: str) -> ast.Module:
    """Every rule asks for the tree of every file."""
    return ast.parse(source, path)


def _nodes(path: str, source: str) -> Iterator[ast.AST]:
    return ast.walk(_tree(path, source))


def _is_product_code(path: str) -> bool:
    return path.startswith("src/") and path.endswith(".py")


def _is_engine_code(path: str) -> bool:
    return path.startswith("src/cede/engine/") and path.endswith(".py")


IMPURE_MODULES = {
    "asyncio", "http", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "signal",
    "socket", "sqlite3", "structlog", "subprocess", "tempfile", "threading", "time", "urllib",
}  # fmt: skip


def the_core_is_pure(path: str, source: str) -> Iterator[Offence]:
    if not path.startswith(CORE) or not path.endswith(".py"):
        return
    for node in _nodes(path, source):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules = [node.module or ""]
        else:
            continue
        for module in modules:
            if module.split(".")[0] in IMPURE_MODULES:
                advice = (
                    f"imports {module}: model and engine do no I/O, read no clock, roll no dice"
                )
                yield Offence(path, node.lineno, advice)


def _is_set(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_set(node.left) or _is_set(node.right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("set", "frozenset")
    return isinstance(node, ast.Set | ast.SetComp)


def the_engine_iterates_in_order(path: str, source: str) -> Iterator[Offence]:
    """The order of a set depends on the hash seed, and a plan must not."""
    if not _is_engine_code(path):
        return
    for node in _nodes(path, source):
        iterated: ast.expr | None = None
        if isinstance(node, ast.For | ast.comprehension):
            iterated = node.iter
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            iterated = node.args[0] if node.func.id in ("list", "tuple", "enumerate") else None
        if iterated is not None and _is_set(iterated):
            advice = "iterates over a set, whose order varies: wrap it in sorted()"
            yield Offence(path, iterated.lineno, advice)


# Shares are fractions of a whole; everything else counts amounts.
MAY_USE_FLOATS = (
    "engine/audit/groups.py",
    *("engine/rights/cover.py", "engine/rights/price.py", "engine/shares/publish.py"),
    *("engine/ledger/ledger.py", "engine/queue/cursor.py"),
    # What a victim costs, what comes first, what is worth it.
    *("engine/queue/budget.py", "engine/queue/score.py", "engine/state/saving.py"),
    # Weights, thresholds and tolerances.
    *("model/settings.py", "model/policy.py", "model/bounds.py"),
)
FRACTIONS = "src/cede/engine/fair/"


def amounts_are_integers(path: str, source: str) -> Iterator[Offence]:
    if not path.startswith(CORE) or path.endswith(MAY_USE_FLOATS) or not path.endswith(".py"):
        return
    if path.startswith(FRACTIONS):
        return
    for node in _nodes(path, source):
        is_literal = isinstance(node, ast.Constant) and isinstance(node.value, float)
        is_call = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "float"
        )
        if isinstance(node, ast.expr) and (is_literal or is_call):
            advice = "a float outside cover.py and price.py: amounts are integers"
            yield Offence(path, node.lineno, advice)


def functions_stay_small(path: str, source: str) -> Iterator[Offence]:
    if not _is_product_code(path):
        return
    for node in _nodes(path, source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                advice = f"{node.name} has {lines} lines, more than {FUNCTION_LINES_MAX}: split it"
                yield Offence(path, node.lineno, advice)


# In pieces, so that this file keeps the rule it states.
PLACES = (
    "/" + "work/", "/" + "farm/", ".." + "/shared",
    "pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "yarnpkg" + ".com",
)  # fmt: skip


def no_place_of_origin(path: str, source: str) -> Iterator[Offence]:
    """A path or a registry of one machine means nothing on another."""
    for number, line in enumerate(source.splitlines(), 1):
        for place in PLACES:
            if place in line:
                yield Offence(path, number, f"names {place}: the project works anywhere")


PRESETS = {"quota", "fair_share", "classes"}


def the_engine_does_not_know_its_preset(path: str, source: str) -> Iterator[Offence]:
    """Presets are settings of one engine: code that asks for one has become two engines."""
    if not _is_engine_code(path) or path.endswith("/presets.py"):
        return
    for node in _nodes(path, source):
        names_it = isinstance(node, ast.Constant) and node.value in PRESETS
        is_member = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if names_it or (is_member and node.value.id == "Preset"):
            advice = "names a preset: ask for the setting that differs"
            yield Offence(path, node.lineno, advice)


RIDDLES = (
    "Who", "Whoever", "Whose", "Whom", "What", "Whatever", "Nobody", "Somebody", "Anybody",
)  # fmt: skip


def docstrings_name_the_component(path: str, source: str) -> Iterator[Offence]:
    """A docstring begins with the thing or the verb, so that one reading is enough."""
    if not _is_product_code(path):
        return
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in _nodes(path, source):
        text = ast.get_docstring(node) if isinstance(node, documented) else None
        first = "" if not text else text.split()[0].strip(".,:;")
        if first in RIDDLES:
            advice = f"a docstring begins with {first}: name the component, and what it does"
            yield Offence(path, getattr(node, "lineno", 1), advice)

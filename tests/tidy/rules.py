"""The house rules. Each is a function over (path, source) that yields what is wrong.

A path is relative to the root, with slashes. Rules take the source as an argument and not from the
disk, so that each can be fed a bad sample: a rule that has never fired proves nothing.
"""

from __future__ import annotations

import ast
import re
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


def _calls(path: str, source: str) -> Iterator[ast.Call]:
    return (node for node in _nodes(path, source) if isinstance(node, ast.Call))


def _is_product_code(path: str) -> bool:
    return path.startswith("src/") and path.endswith(".py")


def _is_engine_code(path: str) -> bool:
    return path.startswith("src/cede/engine/") and path.endswith(".py")


def _imported_names(tree: ast.AST) -> dict[str, str]:
    """What each imported name stands for: `from time import time as now` gives now: time.time."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    names[alias.asname] = alias.name
                else:
                    names[alias.name.split(".")[0]] = alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted_uses(path: str, source: str) -> Iterator[tuple[ast.expr, str]]:
    """Every use of an imported thing with its full name, whatever it was imported as."""
    tree = _tree(path, source)
    imported = _imported_names(tree)

    def full_name(node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            return imported.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = full_name(node.value)
            return f"{owner}.{node.attr}" if owner else None
        return None

    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and (name := full_name(node)):
            yield node, name


CLOCKS = {
    "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns",
    "time.clock_gettime", "time.clock_gettime_ns",
    "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today",
    "datetime.date.today",
}  # fmt: skip
MAY_READ_THE_CLOCK = (
    "src/cede/checkpoint/clock.py",
    "src/cede/launch/clock.py",
    "src/cede/cli/",
    "src/cede/client/",
    "src/cede/server/clock.py",
)


def the_clock_is_read_in_one_place(path: str, source: str) -> Iterator[Offence]:
    if not _is_product_code(path) or path.startswith(MAY_READ_THE_CLOCK):
        return
    for node, name in _dotted_uses(path, source):
        if name in CLOCKS:
            advice = f"{name} reads a clock: take the instant as an argument"
            yield Offence(path, node.lineno, advice)


def dice_are_seeded(path: str, source: str) -> Iterator[Offence]:
    """`random.Random(seed)` repeats; the module's own functions never do."""
    if not _is_product_code(path) or path.startswith("src/cede/client/"):
        return
    for node, name in _dotted_uses(path, source):
        if name.startswith("random.") and name != "random.Random":
            yield Offence(path, node.lineno, f"{name} cannot be repeated: use random.Random(seed)")


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


def no_shell(path: str, source: str) -> Iterator[Offence]:
    if not path.endswith(".py"):
        return
    for call in _calls(path, source):
        for keyword in call.keywords:
            is_off = isinstance(keyword.value, ast.Constant) and not keyword.value.value
            if keyword.arg == "shell" and not is_off:
                yield Offence(path, call.lineno, "shell=True: pass a list of arguments")
    for node, name in _dotted_uses(path, source):
        if name in ("os.system", "os.popen"):
            yield Offence(path, node.lineno, f"{name} runs a shell: use subprocess with a list")


def only_the_command_line_prints(path: str, source: str) -> Iterator[Offence]:
    if not _is_product_code(path) or path.startswith("src/cede/cli/"):
        return
    for call in _calls(path, source):
        if isinstance(call.func, ast.Name) and call.func.id == "print":
            yield Offence(path, call.lineno, "print outside cli: log it, or return it")


def no_bare_except(path: str, source: str) -> Iterator[Offence]:
    if not path.endswith(".py"):
        return
    for node in _nodes(path, source):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield Offence(path, node.lineno, "bare except: name what you expect")


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


def _is_built(node: ast.expr) -> bool:
    """Whether a string is put together at run time: by f-string, +, % or format."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "format"
    return isinstance(node, ast.JoinedStr | ast.BinOp)


def statements_are_not_built_from_strings(path: str, source: str) -> Iterator[Offence]:
    if not path.endswith(".py"):
        return
    for call in _calls(path, source):
        function = call.func
        name = function.attr if isinstance(function, ast.Attribute) else ""
        name = function.id if isinstance(function, ast.Name) else name
        is_sql = name in ("text", "exec_driver_sql")
        if is_sql and call.args and _is_built(call.args[0]):
            advice = f"{name}() of a built string: use bound parameters"
            yield Offence(path, call.lineno, advice)


PROMISE = re.compile(r"\b(?:TO" r"DO|FIX" r"ME)\b")
ISSUE = re.compile(r"#\d+")


def promises_name_their_issue(path: str, source: str) -> Iterator[Offence]:
    for number, line in enumerate(source.splitlines(), 1):
        if PROMISE.search(line) and not ISSUE.search(line):
            yield Offence(
                path, number, f"{PROMISE.search(line)[0]} without an issue: add #<number>"
            )


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

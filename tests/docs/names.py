"""The tests, stories and examples that our pages name, and whether they are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
STORIES = ROOT / "tests" / "engine" / "scenarios"

_CODE = re.compile(r"`([^`\n]+)`")
_TEST = re.compile(r"tests/[\w/]+\.py::\w+")
_EXAMPLE = re.compile(r"example (\d+)")


@cache
def tests_in(path: Path) -> set[str]:
    """Names of the test functions in a file, found without importing it."""
    tree = ast.parse(path.read_text())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


@cache
def examples() -> set[int]:
    tree = ast.parse((ROOT / "tests" / "examples.py").read_text())
    return {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Example"
        and isinstance(node.args[0], ast.Constant)
    }


@cache
def stories() -> set[str]:
    return {path.relative_to(STORIES).with_suffix("").as_posix() for path in STORIES.rglob("*.txt")}


def named(cell: str) -> list[str]:
    """What a cell names as shown by: tests, stories and examples."""
    return _CODE.findall(cell)


def is_there(name: str) -> bool:
    if _TEST.fullmatch(name):
        file, _, test = name.partition("::")
        path = ROOT / file
        return path.is_file() and test in tests_in(path)
    if example := _EXAMPLE.fullmatch(name):
        return int(example[1]) in examples()
    return name in stories()


def looks_like_one(name: str) -> bool:
    """Whether a piece of code in running text is meant as a name of one of these."""
    folder = name.partition("/")[0]
    story = (STORIES / folder).is_dir() and re.fullmatch(r"[a-z]+/\w+", name) is not None
    return bool("::" in name or story or _EXAMPLE.fullmatch(name))


def missing(text: str) -> list[str]:
    """The names on a page that lead nowhere."""
    return [name for name in _CODE.findall(text) if looks_like_one(name) and not is_there(name)]


def rows(text: str, first: str) -> list[list[str]]:
    """The cells of every table row whose first cell matches."""
    found = []
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith("|--"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if re.fullmatch(first, cells[0]):
                found.append(cells)
    return found

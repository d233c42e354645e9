"""Which modules a page lists, and how that differs from those that there are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path

_LINE = re.compile(r"^- `([\w./]+)`:(.*)$", re.MULTILINE)


def modules_below(folder: Path) -> set[str]:
    """Every module of a package; a package below it is its folder, with a slash at the end."""
    paths = (path.relative_to(folder) for path in folder.rglob("*.py"))
    return {
        f"{path.parent.as_posix()}/"
        if path.name == "__init__.py" and path.parent.name
        else path.as_posix()
        for path in paths
    }


def wrong_in(page: str, modules: Collection[str]) -> list[str]:
    """What to change in a page that has a line "- `path`: what it is" for every module."""
    listed = _LINE.findall(page)
    times = Counter(path for path, _ in listed)
    return [
        *(f"{path} is not listed" for path in sorted(set(modules) - set(times))),
        *(f"{path} is listed and is not there" for path in sorted(set(times) - set(modules))),
        *(f"{path} is listed {number} times" for path, number in times.items() if number > 1),
        *(f"{path} has no words" for path, words in listed if not words.strip()),
    ]

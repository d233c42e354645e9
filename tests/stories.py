"""The stories of `tests/engine/scenarios`, each told once however many tests ask for it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from tests.scenario import tell

FILES = sorted((Path(__file__).parent / "engine" / "scenarios").glob("**/*.txt"))


@cache
def reasons_in(path: Path) -> list[dict[str, Any]]:
    """Every reason that its engine gave; a story that is not true raises `Untrue`."""
    given: list[Any] = []
    story = tell(path.read_text(), given.append)
    given += [event.data.get("reason") for event in story.events]
    given += [each.reason and each.reason.to_dict() for each in story.ended.values()]
    return [each for each in given if isinstance(each, dict) and "code" in each]

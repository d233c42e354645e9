"""The stories of `tests/engine/scenarios`, each told once however many tests ask for it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from tests.scenario import tell
from tests.support.properties import Properties

ONE_OF = 5  # is told thoroughly in the quick loop
FILES = sorted((Path(__file__).parent / "engine" / "scenarios").glob("**/*.txt"))


@cache
def reasons_in(path: Path) -> list[dict[str, Any]]:
    """Every reason that its engine gave; a story that is not true raises `Untrue`."""
    given: list[Any] = []
    thorough = Properties.of().times >= 1 or crc32(path.name.encode()) % ONE_OF == 0
    story = tell(path.read_text(), given.append, thorough=thorough)
    given += [event.data.get("reason") for event in story.events]
    given += [each.reason and each.reason.to_dict() for each in story.ended.values()]
    return [each for each in given if isinstance(each, dict) and "code" in each]

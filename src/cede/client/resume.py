"""Finds and verifies the checkpoint from which held work starts, in the folder where it is read.

The folder is the truth; the server's record is what was last known of it. So the newest checkpoint
that holds counts, whether or not the server has heard of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cede.checkpoint import shelf
from cede.checkpoint.manifest import SUFFIX
from cede.checkpoint.shelf import Good
from cede.client.errors import CedeClientError
from cede.client.http import Json

Notify = Callable[[str, str], None]


def find(directory: Path, request: Json, notify: Notify, interrupt: Callable[[], None]) -> Good:
    """Return the two newest checkpoints that hold; the work starts from the first.

    Notifies if the one that the server knows cannot be used. Raises if there is none and the work
    may not start from the beginning.
    """
    committed = str((request.get("saved") or {}).get("id", ""))
    found = shelf.good(directory, at_most=2, interrupt=interrupt)
    point = found.ids[0] if found.ids else ""
    if not committed or shelf.age(point) >= shelf.age(committed):
        return found
    trouble = _trouble(directory, committed, found)
    if not point and request.get("resume") == "required":
        raise CedeClientError(
            f"request {request['id']} cannot be resumed: {trouble}",
            fix="bring the checkpoint back, or ask for `resume: preferred`",
            code="resume_failed",
        )
    instead = f"it goes on from checkpoint {point}" if point else "it starts from the beginning"
    notify("resume", f"{trouble}; {instead}")
    return found


def _trouble(directory: Path, committed: str, found: Good) -> str:
    """Say why the checkpoint that the server knows cannot be used, with the file at fault."""
    for problem in found.problems:
        if problem.startswith(f"checkpoint {committed}:"):
            return f"{problem} (in {directory})"
    return f"checkpoint {committed}: there is no {directory / (committed + SUFFIX)}"

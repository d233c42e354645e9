"""What counting programs note, read by a test."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.slurm.world import World, eventually


def folder(world: World, name: str) -> Path:
    """One for the notes of one program, which any account may write to."""
    made = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=world.home))
    made.chmod(0o777)
    return made


def lines(folder: Path, task: int = 0) -> list[list[str]]:
    """What a task has noted, once it has."""
    path = folder / f"notes.{task}"
    eventually(lambda: path.exists() and path.read_text().endswith("\n"))
    return [line.split() for line in path.read_text().splitlines()]


def noted(folder: Path, word: str, task: int = 0) -> list[list[str]]:
    """Its lines that begin so."""
    return [line for line in lines(folder, task) if line[0] == word]


def last_saved(folder: Path, task: int = 0) -> int:
    return int(noted(folder, "saved", task)[-1][1])

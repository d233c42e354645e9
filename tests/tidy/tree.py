"""The files of the project, as the house rules see them."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MADE = {".git", ".hypothesis", ".venv", "node_modules", "build", "dist", "__pycache__"}


def tracked_files() -> list[str]:
    """Every file that is, or could be, committed; paths relative to the root.

    A file not yet added counts, so that a rule fires before the commit and not after it.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        names = [name for name in listed.stdout.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = _walk()  # an unpacked archive has no history to ask
    return sorted({name for name in names if (ROOT / name).is_file()})


def _walk() -> list[str]:
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
    return [path.as_posix() for path in paths if not any(map(_is_made, path.parts))]


def _is_made(part: str) -> bool:
    return part in MADE or part.endswith("_cache")


def text_of(name: str) -> str | None:
    """The file's text, or None if it is not text."""
    try:
        return (ROOT / name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None

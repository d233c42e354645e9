"""The identity of a checkpoint folder: a random word in it, made once by the first agent.

Agents that read the same word read the same folder, by whatever path they reach it. The server
brings work back to nodes that can read its checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

import structlog

FILE = ".cede-folder"
_BYTES_MAX = 64

_log = structlog.get_logger("cede.agent")


def identity(folder: Path) -> str:
    """Return the word of this folder; empty when it cannot be used."""
    try:
        # Only agents can list the requests that have checkpoints.
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            return _read(folder / FILE)
        part = folder / f"{FILE}.{os.getpid()}"
        part.write_text(secrets.token_hex(8), encoding="ascii")
        with contextlib.suppress(FileExistsError):
            # Unlike a rename it replaces nothing: the first word stays.
            os.link(part, folder / FILE)
        part.unlink()
        return _read(folder / FILE)
    except (OSError, ValueError) as error:
        _log.warning("cannot use the checkpoint folder", folder=str(folder), why=str(error))
        return ""


def _read(path: Path) -> str:
    with path.open(encoding="ascii") as file:
        word = file.read(_BYTES_MAX).strip()
    if not word.isalnum():
        raise ValueError(f"{path} is damaged; remove it to give the folder a new identity")
    return word

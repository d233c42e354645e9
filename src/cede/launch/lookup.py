"""Why work cannot start in its directory or with its program, in words for its user."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

# For people: a search path may have any length.
_PROGRAM_MAX = 200
_PATH_MAX = 1000


def cannot_run(problem: str, program: str, env: Mapping[str, str]) -> str:
    """The sentence on a program's error; a program without a folder in its name is named with its
    PATH.
    """
    told = f"{problem}: {_cut(program, _PROGRAM_MAX)}"
    if os.path.dirname(program):
        return told
    path = os.pathsep.join(os.get_exec_path(env))
    return f"{told} (looked up in PATH {_cut(path, _PATH_MAX) or 'that is empty'})"


def cannot_enter(code: int, directory: str, user: Mapping[str, object] | None) -> str:
    """The sentence on a directory's error; a forbidden directory is named with the account."""
    told = f"{os.strerror(code)}: {directory}"
    if code != errno.EACCES or user is None:
        return told
    return (
        f"{told} (work runs here as the account with the number {user['uid']}, which may not enter "
        "that folder: submit from another one, or name one with --directory)"
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"

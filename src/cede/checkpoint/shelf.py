"""The checkpoints in one directory: which there are, which is newest, and which may go."""

from __future__ import annotations

import os
import re
import shutil
import stat
from contextlib import suppress
from itertools import count, islice
from pathlib import Path

from cede.checkpoint import beneath
from cede.checkpoint.manifest import SUFFIX, is_id

# Whoever writes a million entries gets the first ones looked at and waits no longer than others.
ENTRIES_MAX = 10_000
_PARTIAL = SUFFIX + ".partial"


def age(id: str) -> tuple[tuple[int, str], ...]:
    """What ids are sorted by: numbers as numbers, so that 10-1 comes after 9-1."""
    pieces = re.findall(r"\d+|\D+", id)
    return tuple((int(piece), "") if piece.isdigit() else (-1, piece) for piece in pieces)


def newest(directory: Path) -> list[str]:
    """The ids with a manifest, newest first. Only `verify` says which of them are checkpoints."""
    with beneath.directory(directory) as root:
        return sorted(_with(SUFFIX, _entries(root)), key=age, reverse=True)


def next_id(directory: Path, step: int) -> str:
    """An id that nothing has yet; its directory is made at once, so that nobody else takes it."""
    directory.mkdir(parents=True, exist_ok=True)
    for turn in count(1):
        id = f"{step:06d}-{turn}"
        if os.path.lexists(directory / (id + SUFFIX)):
            continue
        try:
            (directory / id).mkdir()
        except FileExistsError:
            continue
        return id
    raise AssertionError("there is always another number")


def clean(directory: Path, keep: str | None, *, idle: bool = False) -> list[str]:
    """Remove what is older than the committed checkpoint `keep`; the ids that are gone.

    Newer ones stay: they may be good and not committed yet. Partial ones may just be being written,
    so they go only with `idle`, which promises that nobody writes here: before an attempt starts.
    """
    gone: list[str] = []
    with beneath.directory(directory) as root:
        entries = _entries(root)
        whole = set(_with(SUFFIX, entries))
        partial = (_with("", entries) | _with(_PARTIAL, entries)) - whole
        for id in sorted(whole | partial, key=age):
            is_of_no_use = idle if id in partial else keep is not None and age(id) < age(keep)
            if id != keep and is_of_no_use and _remove(root, id):
                gone.append(id)
        os.fsync(root)
    return gone


def remove(directory: Path, id: str) -> bool:
    """Remove one, whole or partial; whether it is gone."""
    with beneath.directory(directory) as root:
        return _remove(root, id)


def _entries(root: int) -> list[str]:
    with os.scandir(root) as entries:
        return [entry.name for entry in islice(entries, ENTRIES_MAX)]


def _with(suffix: str, names: list[str]) -> set[str]:
    found = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return {id for id in found if is_id(id)}


def _remove(root: int, id: str) -> bool:
    """The manifest first: killed anywhere in here, we leave a partial one and no false one (K9)."""
    try:
        _unlink(root, id + SUFFIX)
        os.fsync(root)
        _unlink(root, id + _PARTIAL)
        found = os.stat(id, dir_fd=root, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            shutil.rmtree(id, dir_fd=root)  # by descriptors: it follows no link
        else:
            os.unlink(id, dir_fd=root)
    except FileNotFoundError:
        return True
    except (OSError, RecursionError):  # somebody else's, or a trap; the next cleaning tries again
        return False
    return True


def _unlink(root: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=root)

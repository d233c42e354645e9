"""The checkpoints in one directory: which exist, which is newest, and which may be removed."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from cede.checkpoint import beneath, manifest
from cede.checkpoint.manifest import SUFFIX, NotACheckpoint, is_id
from cede.checkpoint.words import plain

# Of a directory with a million entries only the first are read, so that it takes no longer than
# others.
ENTRIES_MAX = 10_000
# Broken checkpoints named in a report; all of them are passed over.
PROBLEMS_MAX = 10
_PARTIAL = SUFFIX + ".partial"


@dataclass(frozen=True, slots=True)
class Good:
    """The valid checkpoints, newest first, and a sentence for each newer invalid one."""

    ids: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def age(id: str) -> tuple[tuple[int, str], ...]:
    """The sort key of ids: numbers compare as numbers, so that 10-1 comes after 9-1."""
    pieces = re.findall(r"\d+|\D+", id)
    return tuple((int(piece), "") if piece.isdigit() else (-1, piece) for piece in pieces)


def newest(directory: Path) -> list[str]:
    """The ids with a manifest, newest first. Only `verify` tells which of them are checkpoints."""
    with beneath.directory(directory) as root:
        return sorted(_with(SUFFIX, _entries(root)), key=age, reverse=True)


def good(directory: Path, at_most: int = 2, *, interrupt: Callable[[], None] | None = None) -> Good:
    """Verify ids, newest first, until `at_most` of them are valid. A missing directory has none.

    Hashing may take minutes: `interrupt` is called every megabyte, and its exception is passed on.
    """
    try:
        candidates = newest(directory)
    except FileNotFoundError:
        return Good()
    except OSError as error:
        return Good(problems=(plain(f"{directory}: {error.strerror or error}"),))
    ids: list[str] = []
    problems: list[str] = []
    for id in candidates:
        if len(ids) >= at_most:
            break
        if interrupt is not None:
            interrupt()  # empty files are verified without any progress
        try:
            ids.append(manifest.verify(directory, id, _progress(interrupt)).id)
        except _Interrupted as interrupted:
            raise interrupted.reason from None
        except NotACheckpoint as error:
            problems.append(_problem(id, error))
    return Good(tuple(ids), tuple(problems[:PROBLEMS_MAX]))


def next_id(directory: Path, step: int, attempt: int) -> str:
    """A new id, with its directory already made to reserve it.

    The attempt is part of the id, so that tasks of different attempts never have the same.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for turn in count(1):
        id = f"{step:06d}-{attempt}" + (f"-{turn}" if turn > 1 else "")
        if os.path.lexists(directory / (id + SUFFIX)):
            continue
        try:
            (directory / id).mkdir()
        except FileExistsError:
            continue
        return id
    raise AssertionError("there is always another number")


def clean(directory: Path, keep: str | None, *, idle: bool = False) -> list[str]:
    """Remove checkpoints older than `keep`; returns the removed ids.

    Newer ones stay: they may be good and not committed yet. Without `keep` every whole one stays.
    Partial ones may still be in writing, so they are removed only with `idle`, which promises that
    no process writes here: before an attempt starts.
    """
    gone: list[str] = []
    with beneath.directory(directory) as root:
        entries = _entries(root)
        whole = set(_with(SUFFIX, entries))
        partial = (_with("", entries) | _with(_PARTIAL, entries)) - whole
        for id in sorted(whole | partial, key=age):
            is_of_no_use = idle if id in partial else bool(keep) and age(id) < age(keep or "")
            if id != keep and is_of_no_use and _remove(root, id):
                gone.append(id)
        os.fsync(root)
    return gone


def remove(directory: Path, id: str) -> bool:
    """Remove one checkpoint, whole or partial; whether it is gone."""
    with beneath.directory(directory) as root:
        return _remove(root, id)


class _Interrupted(Exception):
    """Carries any exception past `verify`, which would take an OSError for a file's."""

    def __init__(self, reason: Exception) -> None:
        self.reason = reason


def _progress(interrupt: Callable[[], None] | None) -> manifest.Progress | None:
    if interrupt is None:
        return None

    def progress(done: int, total: int) -> None:
        try:
            interrupt()
        except Exception as error:
            raise _Interrupted(error) from error

    return progress


def _problem(id: str, error: NotACheckpoint) -> str:
    """The file of the checkpoint that is at fault, and the reason."""
    reason = error.reason.removeprefix(f"{id}: ")
    where = "" if error.file else f"{id}{SUFFIX}: "
    return plain(f"checkpoint {id}: {where}{reason}")


def _entries(root: int) -> list[str]:
    with os.scandir(root) as entries:
        return [entry.name for entry in islice(entries, ENTRIES_MAX)]


def _with(suffix: str, names: list[str]) -> set[str]:
    found = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return {id for id in found if is_id(id)}


def _remove(root: int, id: str) -> bool:
    """Remove the manifest first: a kill anywhere in here leaves a partial checkpoint and no false
    one (K9).
    """
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
    except (OSError, RecursionError):  # another account's, or a trap; the next cleaning tries again
        return False
    return True


def _unlink(root: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=root)

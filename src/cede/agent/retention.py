"""Removes checkpoints from which no attempt will resume.

The age of one is no proof: a request may wait for weeks, and go on from it on another node. So the
server is asked which requests have ended, about old checkpoints only and a few at a time; requests
that it does not know are left alone, for they may be another server's.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from cede.launch.clock import time_of_day
from cede.launch.places import component
from cede.model import bounds
from cede.model.errors import Invalid

# Seconds between two looks at the whole folder, unless checkpoints are kept for less.
LOOK_EVERY = 3600.0


class Retention:
    """`keep` is how many seconds a checkpoint of an ended request stays, from its last change."""

    def __init__(self, directory: Path, keep: float) -> None:
        self._directory = directory
        self._keep = keep
        self._next = 0.0
        self._after = ""  # the last one asked about: those that live on must not hide the others

    def is_due(self, now: float) -> bool:
        """Whether to look again; True only after some time has passed."""
        if now < self._next:
            return False
        self._next = now + min(LOOK_EVERY, max(self._keep, 1.0))
        return True

    def old(self) -> list[str]:
        """Return some of the requests that have only old checkpoints here."""
        before = time_of_day() - self._keep
        names = sorted(each.name for each in _folders(self._directory))
        turned = [each for each in names if each > self._after] + [
            each for each in names if each <= self._after
        ]
        found = (each for each in turned if _changed(self._directory / each) <= before)
        asked = list(islice(found, bounds.SAVED_ASKED_MAX))
        self._after = asked[-1] if asked else ""
        return asked

    def remove(self, requests: Collection[str]) -> None:
        """Remove the checkpoints of requests that have ended. Follows no link."""
        for request in requests:
            with suppress(Invalid):
                folder = self._directory / component("request", request)
                shutil.rmtree(folder, ignore_errors=True)


def _folders(directory: Path) -> Iterator[Path]:
    with suppress(OSError):  # no request has saved anything here yet
        yield from (each for each in directory.iterdir() if each.is_dir())


def _changed(folder: Path) -> float:
    """Return when a file or folder in it last came or went: whole checkpoints, of any task."""
    with suppress(OSError):
        return max(each.lstat().st_mtime for each in (folder, *_folders(folder)))
    return float("inf")

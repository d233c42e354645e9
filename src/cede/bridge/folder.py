"""The files through which a bridge and the members on its nodes communicate.

DATA/jobs/ALLOCATION/      the bridge's; what members read belongs to their account
    job.json               the intent, then the job's id; before and after each submission
    order.json             what to run; written before the job exists
    wanted.json            hints and stops, numbered; only the bridge writes it
DATA/attempts/ALLOCATION.TASK/   the account's
    claim.json             created once, by the job that runs the task or the bridge that forbids it
    said.jsonl             what happened, one line each; only the member writes it
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from cede.launch.places import Place, component

JOB, ORDER, WANTED = "job.json", "order.json", "wanted.json"
CLAIM, SAID = "claim.json", "said.jsonl"
# Bounds of what one task may write in all, and of what is read at once: its account can write
# anything there.
SAID_MAX, SAID_CHUNK = 16 << 20, 1 << 20
LAST_MAX = 300
# Commands that a member may not have read yet; hints come minutes apart.
WANTED_MAX = 64

Json = dict[str, Any]


def job_folder(data: Path, allocation: str) -> Path:
    return data / "jobs" / component("allocation", allocation)


def put(path: Path, value: object, owner: int | None = None) -> None:
    """Replace a file whole, on disk, and readable by its owner alone."""
    part = path.with_name(f".{path.name}.new")
    with suppress(FileNotFoundError):
        part.unlink()
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        json.dump(value, stream)
        stream.flush()
        os.fsync(stream.fileno())
        if owner is not None:
            os.fchown(stream.fileno(), owner, -1)
    part.replace(path)


def get(path: Path) -> Any:
    """Return the JSON in a file; None where there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def claim(directory: Path, value: Json) -> Json:
    """Claim a task, or forbid it, and return the claim that stands: ours if it was first."""
    with Place(directory) as place:
        place.create(CLAIM, value)
        found: Json = place.read(CLAIM)
        return found


def claimed(directory: Path) -> Json | None:
    try:
        with Place(directory) as place:
            found = place.read(CLAIM)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def last_line(directory: Path, name: str) -> str:
    """Return the last line of a log of the account, as far as it can be shown; or an empty text."""
    try:
        with Place(directory) as place:
            file = place.open(name, os.O_RDONLY | os.O_NONBLOCK)
            with os.fdopen(file, "rb") as stream:
                stream.seek(max(0, os.fstat(file).st_size - LAST_MAX))
                text = stream.read(LAST_MAX).decode(errors="replace").strip()
    except OSError:
        return ""
    last = text.splitlines()[-1] if text else ""
    return "".join(each if each.isprintable() else " " for each in last)


class Said:
    """Reads the lines that a member has written, from where it last stopped."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._at = 0
        self._rest = b""

    def read(self) -> Iterator[Json]:
        """Yield whole lines; lines that no member writes are skipped."""
        try:
            with Place(self._directory) as place:
                file = place.open(SAID, os.O_RDONLY | os.O_NONBLOCK)
                with os.fdopen(file, "rb") as stream:
                    size = os.fstat(file).st_size
                    if size <= self._at or self._at >= SAID_MAX:
                        return
                    stream.seek(self._at)
                    data = stream.read(SAID_CHUNK)
        except OSError:
            return
        self._at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-SAID_CHUNK:]
        for line in lines:
            with suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict):
                    yield found


class Saying:
    """Appends lines for the bridge, from a member."""

    def __init__(self, directory: Path) -> None:
        with Place(directory) as place:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._file = place.open(SAID, flags)

    def say(self, value: Json) -> None:
        os.write(self._file, json.dumps(value).encode() + b"\n")
        os.fsync(self._file)

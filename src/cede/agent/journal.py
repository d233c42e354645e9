"""The agent's journal: a line for every order taken up, on disk before anything starts.

A line is a checksum and JSON. A torn last line was never acted on, and is cut off. Damage anywhere
else means that the disk lost something it had promised to keep: the agent says where and does not
start, because attempts that it no longer knows may be running.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from cede.agent.values import Do, Entry, Key, Kind, Order, Over, Removed, Report, Taken

# A journal is rewritten when it is longer than this, and twice as long as after its last rewriting.
COMPACT_BYTES = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)
_OF_ORDER = tuple(each.name for each in fields(Order))
_OF_REPORT = tuple(each.name for each in fields(Report) if each.name != "devices")


class JournalDamaged(Exception):
    """A line that was on disk is not as it was written."""


class JournalFull(Exception):
    """There is no room for a line; nothing of it was kept."""


class Journal:
    """The journal of one agent; only the process that holds the agent's lock may open it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries, good = _read(path)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, good)
        os.fsync(self._file)
        _sync_folder(path)
        self._end = good
        self._rewritten = 0

    @property
    def has_grown(self) -> bool:
        """Whether a rewriting is worth its write."""
        return self._end > max(COMPACT_BYTES, 2 * self._rewritten)

    def append(self, *entries: Entry) -> None:
        """Append entries; return when they are on disk, all of them or none.

        Any other failure than a full disk ends the agent: after a failed fsync the content of the
        disk is unknown.
        """
        lines = b"".join(map(_line, entries))
        try:
            _write_all(self._file, lines, self._end)
            os.fsync(self._file)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            os.ftruncate(self._file, self._end)
            raise JournalFull(os.strerror(error.errno)) from None
        self._end += len(lines)

    def rewrite(self, entries: Iterable[Entry]) -> None:
        """Replace the journal by these entries, whole or not at all."""
        part = self._path.with_name(f".{self._path.name}.new")
        file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            text = b"".join(_line(each) for each in entries)
            _write_all(file, text, 0)
            os.fsync(file)
            part.replace(self._path)
            _sync_folder(self._path)
        except OSError as error:
            os.close(file)
            if error.errno not in _FULL:
                raise
            part.unlink(missing_ok=True)
            raise JournalFull(os.strerror(error.errno)) from None
        os.close(self._file)
        self._file, self._end = file, len(text)
        self._rewritten = self._end

    def close(self) -> None:
        os.close(self._file)


def _read(path: Path) -> tuple[tuple[Entry, ...], int]:
    """Return the entries on disk, and the end of the last whole line."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return (), 0
    entries: list[Entry] = []
    at = 0
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        entry = _entry(line)
        if entry is None:
            # Blocks of a torn line that never reached the disk read as zeros; a changed bit does
            # not, and the agent that wrote that line may have acted on it.
            if b"\0" in line and not any(lines[number:]):
                break
            raise JournalDamaged(
                f"{path} is damaged in line {number} of {len(lines) - 1}; look at what runs on "
                "this machine, then move the file away to start without it"
            )
        entries.append(entry)
        at += len(line) + 1
    return tuple(entries), at


def _line(entry: Entry) -> bytes:
    text = json.dumps(_json(entry), separators=(",", ":"), sort_keys=True).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _entry(line: bytes) -> Entry | None:
    """Parse a line; None when it is not as it was written."""
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    data = json.loads(text)
    match data["kind"]:
        case "taken":
            return Taken(order_from(data))
        case "over":
            return Over(_report(data))
        case "removed":
            return Removed(Key(*data["key"]))
    raise JournalDamaged(f"an entry of the unknown kind {data['kind']!r}: is this agent too old?")


def _json(entry: Entry) -> dict[str, Any]:
    match entry:
        case Taken(order):
            return {"kind": "taken", **order_json(order)}
        case Over(report):
            told = {name: getattr(report, name) for name in _OF_REPORT}
            return {**told, "end": report.kind, "kind": "over"}
        case Removed(key):
            return {"kind": "removed", "key": list(key)}


def order_json(order: Order) -> dict[str, Any]:
    told = {name: getattr(order, name) for name in _OF_ORDER}
    return told | {"devices": sorted(order.devices)}


def order_from(data: dict[str, Any]) -> Order:
    found = {name: value for name, value in data.items() if name != "kind"}
    found |= {
        "key": Key(*data["key"]),
        "do": Do(data["do"]),
        "devices": frozenset(data["devices"]),
    }
    return Order(**found)


def _report(data: dict[str, Any]) -> Report:
    found = {name: value for name, value in data.items() if name != "end"}
    found |= {"key": Key(*data["key"]), "kind": Kind(data["end"])}
    return Report(**found | {"ids": tuple(data.get("ids", ()))})


def _write_all(file: int, data: bytes, at: int) -> None:
    while data:
        written = os.pwrite(file, data, at)
        data, at = data[written:], at + written


def _sync_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

"""The audit chain (S24): each entry's hash covers the entry and the hash before it.

An entry that is changed, removed, inserted or moved no longer follows from the one before it, or
the next one does not follow from it. The newest entries have no next one: for them the number and
hash of the newest entry, the head, are stored beside the chain with every commit.

Retention may remove the oldest entries. Then the chain begins after the last of them, whose number
and hash are stored, and an entry further on says the same: without it the beginning was cut off.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from cede.store.json_text import decode
from cede.store.rows import canonical
from cede.store.values import AuditEntry, AuditNote

GENESIS = "0" * 64


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of the chain by its number and its hash, which covers all entries before it."""

    number: int
    hash: str

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Self:
        number, _, hash_ = text.partition(":")
        return cls(int(number), hash_)


START = Link(0, GENESIS)


class Flaw(StrEnum):
    NUMBER = "number"  # an entry is missing, or stands where none belongs
    PREVIOUS = "previous"  # the entry does not name the hash of the one before
    HASH = "hash"  # the entry's hash is not that of its content
    HEAD = "head"  # the newest entry is not the one that was stored as the head
    CUT = "cut"  # the oldest entries are missing, and no entry says that they were removed


@dataclass(frozen=True, slots=True)
class Broken:
    """The first entry that does not follow from the beginning, and its flaw."""

    number: int
    what: Flaw
    detail: str


@dataclass(frozen=True, slots=True)
class Verified:
    """A stretch of the chain: `end` is its last good entry, `done` whether the chain ends there.

    `removed` is the last entry that retention removed, START if none was.
    """

    end: Link
    removed: Link
    head: Link | None  # None in databases of versions that stored none
    done: bool
    broken: Broken | None


def entry_hash(number: int, note: AuditNote, previous: str) -> str:
    content = [number, note.created, note.actor, note.action, note.target, note.detail]
    return hashlib.sha256((previous + canonical(content)).encode()).hexdigest()


def extend(notes: Sequence[AuditNote], after: Link) -> list[AuditEntry]:
    """Entries for the notes, after this one."""
    entries = []
    for note in notes:
        number, previous = after.number + 1, after.hash
        after = Link(number, entry_hash(number, note, previous))
        entries.append(AuditEntry(number, note, previous, after.hash))
    return entries


def resume(newest: Link, head: Link) -> Link:
    """The link that a new writer extends.

    If the newest entry is not the stored head, the table was changed from outside. The chain then
    goes on with a link that follows from neither, so that the break stays visible for good.
    """
    if newest == head:
        return head
    mixed = hashlib.sha256(f"{newest} {head}".encode()).hexdigest()
    return Link(max(newest.number, head.number), mixed)


def verify(stored: Iterable[Sequence[Any]], after: Link) -> tuple[Link, Broken | None]:
    """The last of these rows of the table that follows from `after`, and the break behind it."""
    for row in stored:
        number, previous, hash_ = row[0], row[-2], row[-1]
        expected = after.number + 1
        if number != expected:
            detail = f"there is no entry {expected}; the next one is {number}"
            return after, Broken(expected, Flaw.NUMBER, detail)
        if previous != after.hash:
            detail = f"it follows an entry with the hash {previous}, not {after.hash}"
            return after, Broken(expected, Flaw.PREVIOUS, detail)
        if hash_ != (found := _hash_of(row, after.hash)):
            detail = f"its hash is {hash_}, that of its content {found or 'cannot be computed'}"
            return after, Broken(expected, Flaw.HASH, detail)
        after = Link(number, hash_)
    return after, None


def verify_head(newest: Link, head: Link) -> Broken | None:
    """The flaw if the newest entry of a verified chain is not the stored head; None if it is."""
    if newest == head:
        return None
    if newest.number < head.number:
        detail = f"the newest entries, up to {head.number}, are missing"
        return Broken(newest.number + 1, Flaw.HEAD, detail)
    if newest.number > head.number:
        detail = f"the newest entry that a server wrote is {head.number}"
        return Broken(head.number + 1, Flaw.HEAD, detail)
    detail = f"its hash is {newest.hash}, that of the stored head {head.hash}"
    return Broken(newest.number, Flaw.HEAD, detail)


def verify_cut(removed: Link, entry: Sequence[Any] | None) -> Broken | None:
    """The flaw if no entry says that the entries up to `removed` were removed; None if `entry` says
    so. The entry itself is verified with the rest of the chain.
    """
    if removed == START:
        return None
    with contextlib.suppress(KeyError, TypeError, ValueError):
        if entry is not None and entry[0] > removed.number:
            said = decode(entry[5])["audit"]
            if Link(said["through"], said["hash"]) == removed:
                return None
    detail = f"the entries up to {removed.number} are missing, and no entry says they were removed"
    return Broken(removed.number, Flaw.CUT, detail)


def to_json(found: Verified) -> dict[str, Any]:
    broken = found.broken
    return {
        "end": str(found.end),
        "removed": str(found.removed),
        "head": None if found.head is None else str(found.head),
        "done": found.done,
        "broken": broken
        and {"number": broken.number, "what": str(broken.what), "detail": broken.detail},
    }


def _hash_of(row: Sequence[Any], previous: str) -> str | None:
    """The hash of a row's content; None for content that no server wrote."""
    number, created, actor, action, target, detail, _, _ = row
    try:
        note = AuditNote(created, actor, action, target, decode(detail))
        # A different text of the same JSON is an edit, too.
        if canonical(note.detail) != detail:
            return None
        return entry_hash(number, note, previous)
    except (TypeError, ValueError):
        return None

"""The audit chain (S24): each entry's hash covers the entry and the hash before it.

Changing, dropping or inserting an entry anywhere breaks every hash after it, so the last hash
vouches for all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from cede.store.rows import canonical
from cede.store.values import AuditEntry, AuditNote

GENESIS = "0" * 64


def entry_hash(number: int, note: AuditNote, previous: str) -> str:
    content = [number, note.created, note.actor, note.action, note.target, note.detail]
    return hashlib.sha256((previous + canonical(content)).encode()).hexdigest()


def extend(notes: Sequence[AuditNote], number: int, previous: str) -> list[AuditEntry]:
    """Entries for the notes, after the entry with this number and hash."""
    entries = []
    for note in notes:
        number += 1
        hash_ = entry_hash(number, note, previous)
        entries.append(AuditEntry(number, note, previous, hash_))
        previous = hash_
    return entries


def first_break(entries: Iterable[AuditEntry]) -> int | None:
    """The number of the first entry that does not follow from the one before; None if all do."""
    previous = GENESIS
    for number, entry in enumerate(entries, start=1):
        fits = entry.number == number and entry.previous == previous
        if not fits or entry.hash != entry_hash(number, entry.note, previous):
            return number
        previous = entry.hash
    return None

"""Verifies the audit chain from its first entry to its head, piece by piece.

A piece comes from a server or from a database; this module knows neither. An entry is written
NUMBER:HASH, which vouches for every entry before it: an operator who keeps such a note elsewhere
detects later that the chain was written anew, even if all its hashes are right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cede.model import bounds

Json = dict[str, Any]
# The result of verifying a number of entries after one: `end`, `head`, `done`, `broken`.
Piece = Callable[[str, int], Json]

START = "0:" + "0" * 64


def follow(piece: Piece, noted: str | None = None) -> Json:
    """Return `ok`, how many `entries` hold, how many older ones were `removed`, the `head`, and the
    first entry that is `broken`, if any.

    `noted` is an entry that was the head once: the chain must still have it.
    """
    end, found = START, Json()
    at = None if noted is None else _number(noted)
    while True:
        known = _number(end)
        limit = bounds.AUDIT_PIECE_MAX
        if at is not None and known < at:
            # A piece ends at the noted entry, to compare it. The start of the first piece is not
            # known.
            limit = 1 if end == START else min(limit, at - known)
        found = piece(end, limit)
        removed = found.get("removed", START)  # servers of older versions removed no entries
        end, broken = found["end"], found["broken"]
        if broken is None and at is not None:
            broken = _compare_removed(removed, at, noted)
            broken = broken or _compare(end, at, noted, done=found["done"])
        if broken is not None or found["done"]:
            return {
                "ok": broken is None,
                "entries": _number(end) - _number(removed),
                "removed": _number(removed),
                "head": found["head"],
                "broken": broken,
            }


def _compare_removed(removed: str, at: int, noted: str | None) -> Json | None:
    """Return the error if the noted entry is among those that retention removed."""
    if _number(removed) < at or removed == noted:
        return None
    detail = f"entries up to {_number(removed)} were removed as too old; note a newer head"
    return {"number": at, "what": "noted", "detail": detail}


def _compare(end: str, at: int, noted: str | None, *, done: bool) -> Json | None:
    """Return the error if another entry than the noted one stands at its number."""
    if _number(end) == at and end != noted:
        detail = f"its hash is {end.partition(':')[2]}, and {noted} was noted"
        return {"number": at, "what": "noted", "detail": detail}
    if done and _number(end) < at:
        detail = f"the chain ends with entry {_number(end)}, and {noted} was noted"
        return {"number": _number(end) + 1, "what": "noted", "detail": detail}
    return None


def _number(entry: str) -> int:
    return int(entry.partition(":")[0])

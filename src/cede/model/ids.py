"""Ids as people type and read them.

An id is a uuid7: it starts with the time, which all ids of a minute share, and its last group is
random. The short form is the start of that last group. It is accepted wherever an id is, and the
command line and the page show it.
"""

from __future__ import annotations

import re

from cede.model.errors import Conflict

# The offset of the random group.
TAIL = 24
# Of a million requests one in four thousand shares its short form with another.
SHORT = 8
# Fewer letters are more likely a typing error than an id.
SHORT_MIN = 4
# Words for the latest request of the caller.
LATEST = ("-", "last")

# Ids of cede, also as the first part of an allocation's id.
ID = re.compile(r"([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})(?:\.\d+)?")


def short_id(id: str) -> str:
    """The short form of an id; any other text unchanged."""
    return id[TAIL : TAIL + SHORT] if ID.fullmatch(id) else id


def shorten(text: str) -> str:
    """A text with every id in its short form."""
    return ID.sub(lambda found: found[1][TAIL : TAIL + SHORT] + found[0][len(found[1]) :], text)


def ends_with(id: str, ref: str) -> bool:
    """Whether the random group of an id starts with the typed text."""
    return len(ref) >= SHORT_MIN and id[TAIL:].startswith(ref)


def ambiguous(ref: str, ids: list[str], what: str = "start of several ids") -> Conflict:
    """The refusal of a reference that matches several ids, with some of them."""
    return Conflict("ambiguous", f"{ref!r} is the {what}: {_some(ids)}")


def _some(ids: list[str], most: int = 3) -> str:
    """Up to `most` ids, in the short form if it tells them all apart."""
    short = [short_id(each) for each in ids]
    shown = short if len({*short}) == len(ids) else ids
    return ", ".join(shown[:most]) + (" and more" if len(ids) > most else "")

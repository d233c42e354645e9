"""Following the audit chain where retention removed its beginning."""

from __future__ import annotations

from typing import Any

from cede.client.chain import START, follow

REMOVED, NEWEST = 4, 9


def link(number: int) -> str:
    return START if number == 0 else f"{number}:{number:064x}"


def piece(after: str, limit: int) -> dict[str, Any]:
    """What a server says of a chain of nine entries, of which it removed four."""
    begin = max(REMOVED, int(after.partition(":")[0]))
    end = min(NEWEST, begin + limit)
    said = {"head": link(NEWEST), "done": end == NEWEST, "broken": None}
    return {"end": link(end), "removed": link(REMOVED), **said}


def test_what_was_removed_is_counted_apart() -> None:
    found = follow(piece)
    assert (found["ok"], found["entries"], found["removed"]) == (True, 5, 4)


def test_a_noted_entry_is_compared_unless_it_was_removed() -> None:
    for number in (REMOVED, REMOVED + 1, 7, NEWEST):
        assert follow(piece, link(number))["ok"], number
        other = f"{number}:{'a' * 64}"
        assert follow(piece, other)["broken"]["number"] == number
    gone = follow(piece, link(2))
    assert not gone["ok"] and "removed as too old" in gone["broken"]["detail"]


def test_a_server_that_never_removed_anything_says_nothing_of_it() -> None:
    def older(after: str, limit: int) -> dict[str, Any]:
        end = min(3, int(after.partition(":")[0]) + limit)
        return {"end": link(end), "head": link(3), "done": end == 3, "broken": None}

    assert follow(older)["entries"] == 3
    assert follow(older, link(2))["ok"]

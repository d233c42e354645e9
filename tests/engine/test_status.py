"""What a pool's policies lend, in whole units."""

from __future__ import annotations

from cede.engine.explain.status import _parts


def test_what_is_idle_and_not_free_is_lent_in_proportion() -> None:
    assert _parts({"a": 3, "b": 1}, free=0) == [("a", 3), ("b", 1)]
    assert _parts({"a": 3, "b": 1}, free=4) == []
    assert _parts({"a": 2, "b": 2, "c": 0}, free=2) == [("a", 1), ("b", 1)]
    for free in range(8):
        parts = dict(_parts({"a": 5, "b": 2, "c": 1}, free))
        assert sum(parts.values()) == 8 - free
        assert parts.get("a", 0) <= 5 and parts.get("b", 0) <= 2 and parts.get("c", 0) <= 1

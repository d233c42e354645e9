"""A whole state, taken apart: every field of everything in it, so that two can be compared.

What is left out is named here with its reason; whatever a state gets in future is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

from sortedcontainers import SortedList

from cede.engine.ledger.queue import Queue
from cede.engine.state.state import State

# Numbers that only ever move on, so that an answer is known to be old.
MOVES_ON = {"version", "moves"}
# What was worked out once, and is worked out again where what it was made of has changed.
WORKED_OUT = {
    *("solvers", "streams", "appraised", "fair_settings", "ever", "pool_bounds", "passed_over"),
    "refused",
    *("heads", "spare", "ends", "holders_alike", "hunger"),
    *("_answers", "_shares", "_policies_of", "grouped", "parted", "_uses", "_admitted", "_stands"),
}
# Facts about the world: that nodes were heard of is not undone.
HEARD = {"beats"}
# The heap of the timers has entries that hold no more; what each map says is compared.
ORDER = {"heap", "_heap", "_due"}
LEFT_OUT = MOVES_ON | WORKED_OUT | HEARD | ORDER


def trace(state: State) -> Any:
    """Every field, without what is empty: a sum of nothing is no sum."""
    return _Taking(LEFT_OUT).apart(state)


def untimed(state: State) -> list[Any]:
    """What changes by itself at some instant and has no timer that comes up by then."""
    keys = [("request", each) for each in state.requests]
    keys += [("allocation", each) for each in state.allocations]
    keys += [("node", each) for each in state.nodes]
    keys += [("pool", each) for each in state.pools]
    due = {key: at for key in keys if (at := state._due(key)) is not None}
    known = state.timers._scheduled
    return [key for key, at in due.items() if known.get(key, at + 1) > at]


class _Taking:
    def __init__(self, left_out: set[str]) -> None:
        self.left_out = left_out
        self.inside: list[int] = []  # what is being taken apart: some know what they are part of

    def apart(self, value: Any) -> Any:
        if value is None or isinstance(value, str | int | float | Enum) or callable(value):
            return None if callable(value) else value
        if id(value) in self.inside:
            return None
        self.inside.append(id(value))
        try:
            return self._apart(value)
        finally:
            self.inside.pop()

    def _apart(self, value: Any) -> Any:
        if isinstance(value, Mapping):  # many are ordered sets: keys of which each has None
            return _sorted(
                {_name(key): each is None or self.apart(each) for key, each in value.items()}
            )
        if isinstance(value, Queue):  # what it knows of their least demands are bounds
            return [(each, dict(value.demand(each))) for each in value]
        if isinstance(value, SortedList):
            return [self.apart(each) for each in value]
        if isinstance(value, Set):
            return sorted(map(_name, value))
        if isinstance(value, list | tuple):
            return [self.apart(each) for each in value]
        if is_dataclass(value) and value.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            return repr(value)
        return _sorted(
            {name: self.apart(each) for name, each in _fields(value) if self._counts(name)}
        )

    def _counts(self, name: str) -> bool:
        return name not in self.left_out


def _name(key: Any) -> str:
    return key if isinstance(key, str) else repr(key)


def _sorted(parts: dict[str, Any]) -> dict[str, Any]:
    return {key: parts[key] for key in sorted(parts) if not _empty(parts[key])}


def _empty(value: Any) -> bool:
    return value is None or value == 0 or value == {} or value == []


def _fields(value: Any) -> list[tuple[str, Any]]:
    slots = [name for each in type(value).__mro__ for name in getattr(each, "__slots__", ())]
    return [
        *((name, getattr(value, name)) for name in slots if hasattr(value, name)),
        *getattr(value, "__dict__", {}).items(),
    ]

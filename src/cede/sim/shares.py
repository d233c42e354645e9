"""The shares of a snapshot's pools as they are before any pass."""

from __future__ import annotations

from typing import Any

from cede.engine.explain.shares import show, view_of
from cede.engine.shares.publish import refresh
from cede.engine.state.state import State
from cede.snapshot.reader import load


def run(snapshot: object) -> dict[str, Any]:
    """The answer is plain data, the same as `cede shares --file FILE --json` prints."""
    state = load(snapshot)
    refresh(state, [])
    pools = sorted(state.pools.values(), key=lambda each: each.name)
    views = [view_of(state, each.id, state.now) for each in pools]
    return show(views, state.now, _names(state, snapshot))


def _names(state: State, snapshot: Any) -> dict[str, str]:
    """The names of allocations in the snapshot: those of its running entries."""
    names = {each.id: each.request_id for each in state.allocations.values()}
    for entry in snapshot.get("running") or ():
        held = state.allocation_of(str(entry.get("request", "")))
        if held is not None and "id" in entry and str(entry["id"]) not in state.requests:
            names[held.id] = str(entry["id"])
    return names

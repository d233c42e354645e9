"""A state without its counters: orders and relations only. Two states with one form behave alike.

Tasks of a task group are alike, so their names do not matter: in a form they stand in the order of
their places.
"""

from __future__ import annotations

from typing import Any

from cede.engine.state.state import State
from cede.model.allocation import Allocation
from cede.model.request import Request

from .steps import STEP, age_of, clocks, stages

Canon = tuple[Any, ...]


def canon(state: State, arrived: int, lost: bool) -> Canon:
    places: list[tuple[int, Allocation | Request]] = [
        (each.index, each) for each in state.allocations.values() if each.live
    ]
    places += [(r.earmark.index, r) for r in state.waiting() if r.earmark is not None]
    places.sort(key=lambda each: each[0])
    names = _names(state, [each for _, each in places])
    held = tuple(_form(state, each, names) for _, each in places)
    waiting = [(names[r.id], r.bypassed, r.withhold is not None) for r in state.waiting()]
    nodes = [n for n in state.nodes.values() if not n.usable or n.claimed_by]
    out = tuple(sorted((n.id, str(n.state), n.claimed_by) for n in nodes))
    time = (tuple(sorted(clocks(state))), tuple(sorted(stages(state))))
    return (arrived, lost, held, tuple(sorted(waiting)), out, time)


def _names(state: State, places: list[Allocation | Request]) -> dict[str, str]:
    """Those in task groups by their place among those who hold; their waiters have one name."""
    names: dict[str, str] = {}
    counts: dict[str, int] = {}
    for each in places:
        request = state.requests[each.request_id if isinstance(each, Allocation) else each.id]
        names[request.id] = request.id
        if request.part_of is not None:
            number = counts[request.part_of] = counts.get(request.part_of, 0) + 1
            names[request.id] = f"{request.part_of}#{number}"
    for request in state.waiting():
        names.setdefault(request.id, request.part_of or request.id)
    return names


def _form(state: State, each: Allocation | Request, names: dict[str, str]) -> Canon:
    if isinstance(each, Request):
        assert each.earmark is not None
        return (names[each.id], each.earmark.pool_id, "earmark", each.earmark.footprint)
    left = None if each.deadline is None else (each.deadline - state.now) // STEP
    return (
        names[each.request_id],
        each.pool_id,
        str(each.state),
        each.told,
        names.get(each.taken_for or "", each.taken_for or ""),
        each.footprint,
        each.stop_progress is not None and each.stop_progress.saved,
        left,
        age_of(state, each),
    )

"""A preview of what an edit would do to work: which requests it stops, pauses or lets start.

The edit is tried on the real state and taken back. Effects that would happen anyway are left out:
the same passes are run without the edit. Victims stop at once, and a limit gets no grace. No time
passes, so what a starving policy takes later is not in the answer (`cede plan --horizon` shows it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cede.engine.decide import decide
from cede.engine.ledger.admit import pause_reason, paused
from cede.engine.state.state import State
from cede.engine.state.trial import what_if
from cede.model import bounds
from cede.model.reason import Reason
from cede.model.settings import OverLimit
from cede.sim.plan import stop_victims

_Shown = dict[str, dict[str, Any]]


@dataclass(slots=True)
class _Course:
    """The requests that stop, pause and start, by id."""

    stops: _Shown = field(default_factory=dict)
    pauses: _Shown = field(default_factory=dict)
    starts: _Shown = field(default_factory=dict)


def preview(state: State, now: int, edit: Callable[[], object]) -> dict[str, Any]:
    """The requests that an edit would stop, pause or start, with their counts; the state is
    unchanged. An edit that is not allowed raises its own error.
    """
    without = _course(state, now, lambda: None)
    made = _course(state, now, edit)
    found = {
        "stops": _beside(made.stops, without.stops),
        "pauses": _beside(made.pauses, {**without.pauses, **made.stops}),
        "starts": _beside(made.starts, without.starts),
    }
    counts = {name: len(each) for name, each in found.items()}
    return {"counts": counts, **{k: v[: bounds.PREVIEWED_MAX] for k, v in found.items()}}


def _beside(these: _Shown, those: Mapping[str, object]) -> list[dict[str, Any]]:
    return [shown for request_id, shown in these.items() if request_id not in those]


def _course(state: State, now: int, edit: Callable[[], object]) -> _Course:
    found, eager = _Course(), state.eager
    with what_if(state):
        state.now = now
        state.eager = True  # shares are computed before each pass, as for a plan
        try:
            edit()
            _spend_grace(state)
            _to_rest(state, found)
        finally:
            state.eager = eager
    return found


def _spend_grace(state: State) -> None:
    for pool in list(state.pools.values()):
        settings = pool.settings
        if settings.over_limit is OverLimit.PREEMPT and settings.over_limit_grace:
            state.put(replace(pool, settings=replace(settings, over_limit_grace=0)))


def _to_rest(state: State, found: _Course) -> None:
    """Run passes at one instant until no victim is left to stop, and note what they did."""
    held = {each.request_id for each in state.allocations.values() if each.live}
    for _ in range(bounds.PASSES_MAX):
        decide(state, state.now)
        for allocation in [each for each in state.allocations.values() if each.live]:
            request = state.requests[allocation.request_id]
            if allocation.leaving and request.id not in found.stops:
                shown = _shown(state, request.id, allocation.pool_id, request.reason)
                found.stops[request.id] = {**shown, "for": allocation.taken_for}
        if not stop_victims(state):
            break
    for request in state.waiting():
        if paused(state, request):
            found.pauses[request.id] = _shown(state, request.id, None, pause_reason(state, request))
    for allocation in [each for each in state.allocations.values() if each.live]:
        if (started := allocation.request_id) not in held:
            found.starts[started] = _shown(state, started, allocation.pool_id, None)


def _shown(
    state: State, request_id: str, pool_id: str | None, reason: Reason | None
) -> dict[str, Any]:
    request = state.requests[request_id]
    shown: dict[str, Any] = {"request": request_id, "component": request.subject.name}
    if pool_id is not None:
        shown["pool"] = state.pools[pool_id].name
    if reason is not None:
        shown["reason"] = reason.to_public()
    return shown

"""A set of victims, tried on the state itself: whether the waiter has their room afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from unittest.mock import patch

from cede.engine import decide
from cede.engine.lifecycle import endings
from cede.engine.state.state import State
from cede.engine.state.trial import what_if
from cede.model.lifecycle import AllocationState

PASSES = 4  # new victims may make others stop, which ends soon


def comes_to_nothing(state: State, waiter_id: str, gone: Iterable[str]) -> bool:
    """Whether a waiter has no room, and no promise of any, once these and all who leave already
    have stopped and wait again: somebody above it gets what they leave. Then it takes nothing
    (0014), and rests rightly. Nothing is rehearsed here: whoever decides then decides plainly.
    """
    with what_if(state), patch.object(decide, "regrets", lambda *_: {}):
        stopping = dict.fromkeys(sorted(gone))
        for _ in range(PASSES):
            stopping |= {each.id: None for each in state.allocations.values() if each.leaving}
            for each in [state.allocations[one] for one in stopping]:
                if each.live and each.state is not AllocationState.LOST:
                    endings.stopped(state, state.requests[each.request_id], each)
            decide.decide(state, state.now)
            stopping = {}
        held = state.allocation_of(waiter_id)
        if held is not None:
            return held.leaving
        return state.requests[waiter_id].earmark is None

"""Why a waiter's turn has not come: a dependency has not ended, or its array is at its bound."""

from __future__ import annotations

from cede.engine.state.state import State
from cede.model.reason import Code, Reason
from cede.model.request import Request


def turn_reason(state: State, request: Request) -> Reason:
    if request.id not in state.gates.pending:
        held, following = state.gates.ahead(request)
        numbers = {"bound": request.at_once, "held": held, "next": following}
        return Reason(Code.ARRAY_BOUND, numbers)
    awaited = state.gates.awaited(request)
    first, others = awaited[0], len(awaited) - 1
    detail = {"dependency": first, "state": _state_of(state, first), "request": request.ref}
    detail["more"] = f", and {others} more" if others else ""
    detail["well"] = " well" if first in request.after else ""
    return Reason(Code.DEPENDENCY, detail)


def _state_of(state: State, ref: str) -> str:
    """The progress of a dependency, in words."""
    alive = state.gates.holds(ref)
    if len(alive) == 1 and alive[0].ref == ref:
        return f"which is {alive[0].status}"
    running = sum(not each.waiting for each in alive)
    return f"of which {len(alive)} tasks have not ended; {running} run"

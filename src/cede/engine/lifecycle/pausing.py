"""Pausing: waiters that an edit pauses or lets wait again.

An edit that lowers a limit, a reserve, a class or a capacity below a waiter's demand pauses it
(L8): it stays `queued` or `suspended`, with that reason, and is in no queue. So it is no head, no
demand of a fair share, and nothing is promised to it or withheld for it. An edit that raises the
bound again gives it back its old place.
"""

from __future__ import annotations

from cede.engine.ledger.admit import pause_reason, paused
from cede.engine.state.state import State
from cede.model.copying import replace
from cede.model.request import Request


def announce(state: State) -> bool:
    """Take their promises from waiters that edits paused, and record which were paused or wait
    again; whether there were any.
    """
    moved = dict(state.displaced)
    state.displaced.clear()
    changed = False
    for request_id, had_place in moved.items():
        request = state.requests.get(request_id)
        if request is None or not request.waiting or had_place != paused(state, request):
            continue
        changed = True
        if had_place:
            pause(state, request)
        else:
            state.emit("unpaused", request_id=request.id)
    return changed


def pause(state: State, request: Request) -> None:
    """Pause a waiter: what was promised to it becomes free for others."""
    state.put(replace(request, earmark=None, withhold=None, bypassed=0))
    state.emit("paused", request_id=request.id, reason=pause_reason(state, request).to_dict())

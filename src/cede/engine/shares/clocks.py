"""A pool's clocks as they are stored: since when policies and requests are below their fair share,
since when work is above a limit, and the volumes that guarantees over time have saved up.

Starvation is not stored: it follows from how long the clock has run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cede.engine.fair.status import Starvation
from cede.engine.fair.tree import Volume
from cede.engine.state.state import State


def shown(state: State, pool_id: str) -> dict[str, Any]:
    """The clocks as JSON; empty if no clock runs and nothing is saved up."""
    below: Mapping[str, Starvation] = state.starving.get(pool_id, {})
    volumes: Mapping[str, Volume] = state.volumes.get(pool_id, {})
    saved = {each: [dict(of.saved), of.last_share] for each, of in volumes.items() if of.saved}
    found: dict[str, Any] = {
        "below": {each: of.since for each, of in below.items()},
        "over": state.over.get(pool_id, {}),
    }
    if saved:  # the instant up to which they were filled
        found |= {"saved": saved, "at": state.published_at[pool_id]}
    return {name: value for name, value in found.items() if value != {}}


def restore(state: State, pool_id: str, found: Mapping[str, Any]) -> None:
    """Restore the clocks. Elements that no longer exist are dropped when shares are next
    computed.
    """
    below, over = found.get("below", {}), found.get("over", {})
    state.starving[pool_id] = {each: Starvation(since=since) for each, since in below.items()}
    state.over[pool_id] = dict(over)
    if saved := found.get("saved"):
        state.volumes[pool_id] = {each: Volume(*of) for each, of in saved.items()}
        state.published_at[pool_id] = found["at"]

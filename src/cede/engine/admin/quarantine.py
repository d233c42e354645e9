"""Quarantine after a restore: grants made after the copy are unknown, and may still be held.

Every pool grants nothing until all nodes have reported that they run nothing unknown and every
lease that clients or nodes may have is over. Then all pools go on at once, because a request that
waits here may run in any of its pools. An operator may enable a pool earlier. A node takes nothing
until it has reported this itself, or an operator enables it.
"""

from __future__ import annotations

from dataclasses import replace

from cede.engine.admin.edits import find_pool
from cede.engine.state.state import State
from cede.model import bounds
from cede.model.durations import seconds
from cede.model.errors import Conflict
from cede.model.pool import Pool

_NAMED = 10
# Later than the end of any bounded lease.
NO_END = 100 * bounds.LEASE_MAX


def begin(state: State, now: int, until: int) -> None:
    """Put all pools and nodes into quarantine; every unknown lease is over at `until`."""
    state.now = now
    for pool in list(state.pools.values()):
        state.put(replace(pool, quarantine=until))
        state.emit("pool_quarantined", pool_id=pool.id, name=pool.name)
    for node in list(state.nodes.values()):
        state.put(replace(node, quarantined=True))


def is_on(state: State) -> bool:
    return any(each.quarantine is not None for each in state.pools.values())


def due(state: State) -> int | None:
    """The future instant at which the last unknown lease is over; None if it is over."""
    ends = [each.quarantine for each in state.pools.values() if each.quarantine is not None]
    return max((each for each in ends if each > state.now), default=None)


def end(state: State) -> bool:
    """Let all pools grant again once nothing unknown is left; whether any does."""
    if not is_on(state) or due(state) is not None or _silent(state):
        return False
    for pool in list(state.pools.values()):
        if pool.quarantine is not None:
            _enable(state, pool)
    return True


def spoken(state: State, node_id: str, now: int) -> None:
    """End a node's quarantine: its agent, or an operator, vouches that nothing unknown runs
    there.
    """
    state.now = now
    node = state.nodes[node_id]
    if node.quarantined:
        state.put(replace(node, quarantined=False))
        state.emit("node_known", pool_id=node.pool_id, node=node.name)


def enable_pool(state: State, name_or_id: str, now: int) -> Pool:
    """End a pool's quarantine: an operator vouches that nothing unknown is held there."""
    state.now = now
    pool = find_pool(state, name_or_id)
    if pool.quarantine is None:
        raise Conflict("not_quarantined", f"pool {pool.name} is not in quarantine")
    _enable(state, pool)
    return state.pools[pool.id]


def unknown(state: State) -> str:
    """The nodes and leases that are still unknown, in words."""
    parts = []
    if silent := _silent(state):
        more = f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else ""
        names = f"{', '.join(silent[:_NAMED])}{more}"
        parts.append(f"nodes have not said what runs on them: {names}")
    if (until := due(state)) is not None:
        left = until - state.now
        until_then = f"{seconds(left)} s more" if left < NO_END else "for ever: some had no end"
        parts.append(f"leases that were given since the copy may last {until_then}")
    return "; ".join(parts) or "the next pass ends that"


def _silent(state: State) -> list[str]:
    return sorted(each.name for each in state.nodes.values() if each.quarantined)


def _enable(state: State, pool: Pool) -> None:
    state.put(replace(pool, quarantine=None))
    state.emit("pool_enabled", pool_id=pool.id, name=pool.name)

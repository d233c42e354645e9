"""Clocks in a snapshot: since when a policy or request is below its fair share, or above a limit.

Without them a plan is as patient as a newly installed server; with them it decides at the same
instants as the server that made the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cede.engine.fair.status import Starvation
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.state.state import State
from cede.model.durations import parse_instant, seconds
from cede.model.errors import listed
from cede.snapshot.fields import Entry, SnapshotError, at

CLOCKS = ("below_since", "over_since")


class _Clock(NamedTuple):
    """A clock's names: in a snapshot, as an element of fair shares, and as the place of a limit."""

    shown: str
    element: str
    where: str


def show_clocks(state: State, pool_id: str) -> dict[str, dict[str, Any] | None]:
    """A pool's clocks by `policy NAME`, `request ID`, `node NAME` or `pool NAME`."""
    below: Mapping[str, Starvation] = state.starving.get(pool_id, {})
    over = state.over.get(pool_id, {})
    if not below and not over:
        return {}
    every = sorted(_clocks(state, state.ledgers[pool_id]))
    hungry = {each.shown: below[each.element].since for each in every if each.element in below}
    above = {each.shown: over[each.where] for each in every if each.where in over}
    return {"below_since": _shown(hungry), "over_since": _shown(above)}


def _shown(clocks: Mapping[str, int | None]) -> dict[str, Any] | None:
    return {name: seconds(since) for name, since in clocks.items()} or None


def read_clocks(state: State, pool_id: str, path: str, fields: Entry) -> None:
    """Set a pool's clocks from the snapshot; a clock that it does not name starts now."""
    if not any(fields.get(name) for name in CLOCKS):
        return
    known = _known(state, state.ledgers[pool_id])
    elements = {name: clock for name, clock in known.items() if clock.element}
    below = _instants(path, fields, "below_since", elements, state.now)
    over = _instants(path, fields, "over_since", known, state.now)
    state.starving[pool_id] = {clock.element: Starvation(since=at) for clock, at in below.items()}
    state.over[pool_id] = {clock.where: at for clock, at in over.items()}


def _clocks(state: State, ledger: PoolLedger) -> Iterator[_Clock]:
    for policy in ledger.policies.values():
        yield _Clock(f"policy {policy.subject}", policy.id, f"policy {policy.name}")
    alive = (each for each in state.requests.values() if not each.ended)
    for task_group in sorted({each.part_of or each.id for each in alive}):
        yield _Clock(f"request {task_group}", task_group, f"request {task_group}")
    for spot in () if ledger.inventory is None else ledger.inventory.spots.values():
        yield _Clock(f"node {spot.node.name}", "", f"node {spot.node.name}")
    yield _Clock(f"pool {ledger.pool.name}", "", f"pool {ledger.pool.name}")


def _known(state: State, ledger: PoolLedger) -> dict[str, _Clock]:
    """Clocks by the names that people may use: a policy also by its own name, if it is unique."""
    every = list(_clocks(state, ledger))
    named: dict[str, list[_Clock]] = {}
    for each in every:
        named.setdefault(each.where, []).append(each)
    return {
        **{name: same[0] for name, same in named.items() if len(same) == 1},
        **{each.shown: each for each in every},
    }


def _instants(
    path: str, fields: Entry, name: str, known: Mapping[str, _Clock], now: int
) -> dict[_Clock, int]:
    given = fields.get(name) or {}
    path = f"{path}.{name}"
    if not isinstance(given, Mapping):
        raise SnapshotError(path, "must be a map from `policy NAME` or `request ID` to an instant")
    found = {}
    for whose, value in given.items():
        if whose not in known:
            raise SnapshotError(f"{path}.{whose}", f"nobody; known are {listed(whose, known)}")
        with at(path):
            since = parse_instant(value, str(whose))
        if since > now:
            raise SnapshotError(f"{path}.{whose}", "is after the instant of the snapshot")
        found[known[whose]] = since
    return found

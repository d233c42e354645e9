"""The holders of a pool's units with their rights: the first to be asked to leave comes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cede.engine.ledger.ledger import PoolLedger
from cede.engine.rights.cover import Holding
from cede.engine.rights.standing import BORROWED, IN_SHARE
from cede.engine.state.state import State
from cede.engine.victims.pricing import appraise

_RIGHTS = {IN_SHARE: "in_share", BORROWED: "borrowed"}


def holders(
    state: State, pool_id: str, seen: Callable[[str], bool], offset: int, limit: int
) -> tuple[list[dict[str, Any]], int]:
    """A part of the holders whose request is `seen`, and the number of all these: by standing, the
    lowest first, and the newest first of equal ones. Promises to waiters are at the end, because
    they are not taken.
    """
    ledger = state.ledgers[pool_id]

    def place(holding: Holding) -> tuple[Any, ...]:
        return (holding.earmark, ledger.standing_of(holding.id), -holding.index)

    every = [each for each in ledger.holdings.values() if seen(_request_of(state, each))]
    part = sorted(every, key=place)[offset : offset + limit]
    return [_shown(state, ledger, each) for each in part], len(every)


def _request_of(state: State, holding: Holding) -> str:
    return holding.id if holding.earmark else state.allocations[holding.id].request_id


def _shown(state: State, ledger: PoolLedger, holding: Holding) -> dict[str, Any]:
    shown = {"id": _request_of(state, holding), "price": None, "protected": None}
    if holding.earmark:
        return shown | {"right": "promised"}
    found = appraise(state, ledger, holding)
    return shown | {
        "right": _RIGHTS.get(ledger.rights(holding.id), "in_a_share_above"),
        "price": round(found.price.total, 3),
        "protected": None if found.shield is None else str(found.shield),
    }

"""Waiters that a step passes over."""

from __future__ import annotations

from collections.abc import Container

from cede.engine.ledger.account import fits, free_to_promise
from cede.engine.ledger.ledger import PoolLedger
from cede.engine.ledger.tenants import tenant_room
from cede.engine.state.state import State


class Covered:
    """Waiters that need nothing more: those with a promise in some pool, and `besides`."""

    def __init__(self, state: State, besides: Container[str] = ()) -> None:
        self._state = state
        self._besides = besides

    def __contains__(self, request_id: object) -> bool:
        if request_id in self._besides:
            return True
        return self._state.requests[str(request_id)].earmark is not None


class WithinQuota:
    """Waiters for which their tenant's quota has no node left, and `besides`."""

    def __init__(self, state: State, besides: Container[str] = ()) -> None:
        self._state = state
        self._besides = besides

    def __contains__(self, request_id: object) -> bool:
        if request_id in self._besides:
            return True
        return not tenant_room(self._state, self._state.requests[str(request_id)])


class PromisedElsewhere:
    """Waiters with a promise in another pool that could start in this one only by cutting a
    promise; and `besides`.
    """

    def __init__(self, state: State, ledger: PoolLedger, besides: Container[str] = ()) -> None:
        self._state = state
        self._ledger = ledger
        self._besides = besides

    def __contains__(self, request_id: object) -> bool:
        if request_id in self._besides:
            return True
        request, pool = self._state.requests[str(request_id)], self._ledger.pool
        if request.earmark is None or request.earmark.pool_id == pool.id:
            return False
        return not fits(pool.metered(request.amounts), free_to_promise(self._ledger))

"""The living work of each tenant, and whether its quota has room for more.

Counts are kept like all indexes of the state: the old value out, the new one in. So undoing keeps
them right, and reading costs nothing. A request counts with as many nodes as it has tasks, its
largest possible number; a holder with its nodes, in a counted pool with its tasks. A promise counts
as held: two promises that fit alone must not exceed the quota together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cede.engine.ledger.account import FITS, Bound, Verdict
from cede.model.allocation import Allocation
from cede.model.policy import Policy
from cede.model.reason import Code, Reason
from cede.model.request import Request
from cede.model.tenant import Tenant

if TYPE_CHECKING:
    from cede.engine.state.state import State


# Pools in which a waiter may start now.
Pools = dict[str, None]


class Tenancy:
    """Counts by the names that requests give, also without a tenant of that name. Methods that make
    room return the pools in which a waiter may start.
    """

    def __init__(self) -> None:
        self.named: dict[str, Tenant] = {}
        self.alive: dict[str, int] = {}  # requests that have not ended
        self.held: dict[str, int] = {}  # nodes of live allocations
        self.promised: dict[str, int] = {}  # nodes of earmarks
        self.waiters: dict[str, dict[str, int]] = {}  # by pool: waiters with a place there
        self._holders: dict[str, tuple[str, int]] = {}  # allocation: its tenant, its nodes

    def know(self, tenants: dict[str, Tenant], old: Tenant | None, new: Tenant | None) -> Pools:
        """Change, add or remove a tenant; `tenants` has them by id."""
        concerned: Pools = {}
        for tenant in (old, new):
            if tenant is not None:
                concerned |= dict.fromkeys(self.waiters.get(tenant.name, ()))
        if old is not None:
            del self.named[old.name], tenants[old.id]
        if new is not None:
            self.named[new.name] = tenants[new.id] = new
        return concerned

    def count(self, old: Request | None, new: Request | None) -> Pools:
        """Count the change of a request; its tenant never changes."""
        either = old or new
        if either is None or not (name := either.terms.tenant):
            return {}
        for request, times in ((old, -1), (new, 1)):
            if request is not None and not request.ended:
                _add(self.alive, name, times)
                if request.earmark is not None:
                    _add(self.promised, name, times * request.tasks)
        return {} if old is None or old.earmark is None else self._concerned(name)

    def wait(self, request: Request, places: Iterable[Policy], times: int) -> None:
        """Count a waiter in (1) or out (-1)."""
        if not (name := request.terms.tenant):
            return
        pools = self.waiters.setdefault(name, {})
        for policy in places:
            _add(pools, policy.pool_id, times)
        if not pools:
            del self.waiters[name]

    def hold(self, request: Request, allocation: Allocation) -> None:
        if name := request.terms.tenant:
            nodes = nodes_of(request, allocation)
            self._holders[allocation.id] = (name, nodes)
            _add(self.held, name, nodes)

    def let_go(self, allocation: Allocation) -> Pools:
        name, nodes = self._holders.pop(allocation.id, ("", 0))
        if not name:
            return {}
        _add(self.held, name, -nodes)
        return self._concerned(name)

    def _concerned(self, name: str) -> Pools:
        tenant = self.named.get(name)
        if tenant is None or tenant.max_nodes is None:
            return {}
        return dict.fromkeys(self.waiters.get(name, ()))


def _add(counts: dict[str, int], key: str, amount: int) -> None:
    left = counts.get(key, 0) + amount
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)


def nodes_of(request: Request, allocation: Allocation) -> int:
    return len(allocation.footprint) if allocation.members else request.tasks


def tenant_room(state: State, request: Request) -> bool:
    """Whether a request's tenant may use its nodes as well; asked before grants and promises."""
    name = request.terms.tenant
    if not name:
        return True
    tenant = state.tenancy.named.get(name)
    if tenant is None or tenant.max_nodes is None:
        return True
    return _taken(state, request) + request.tasks <= tenant.max_nodes


def _taken(state: State, request: Request) -> int:
    """The nodes that other requests of its tenant hold or have promises for."""
    name, counts = request.terms.tenant, state.tenancy
    own = request.tasks if request.earmark is not None else 0
    return counts.held.get(name, 0) + counts.promised.get(name, 0) - own


def refusal(state: State, name: str, tasks: int) -> Reason | None:
    """Why a tenant's quota has no room for one more request; None if it has."""
    tenant = state.tenancy.named.get(name)
    if tenant is None:
        return None
    alive = state.tenancy.alive.get(name, 0)
    if tenant.max_concurrent is not None and alive >= tenant.max_concurrent:
        detail = {"tenant": name, "held": alive, "requested": 1, "bound": tenant.max_concurrent}
        return Reason(Code.TENANT_CONCURRENT, {**detail, "enough": alive + 1})
    if not has_nodes(state, name, tasks):
        return nodes_reason(tenant, state.tenancy.held.get(name, 0), tasks)
    return None


def has_nodes(state: State, name: str, nodes: int) -> bool:
    """Whether a tenant with so many more nodes is still within its quota."""
    tenant = state.tenancy.named.get(name)
    if tenant is None or tenant.max_nodes is None:
        return True
    return state.tenancy.held.get(name, 0) + nodes <= tenant.max_nodes


def quota_verdict(state: State, request: Request) -> Verdict:
    """The verdict of a tenant's quota on a waiter, which holds in every pool."""
    if tenant_room(state, request):
        return FITS
    tenant = state.tenancy.named[request.terms.tenant]
    assert tenant.max_nodes is not None, tenant
    left = tenant.max_nodes - _taken(state, request)
    return Verdict(Bound.TENANT, tenant.name, "nodes", request.tasks, left)


def nodes_reason(tenant: Tenant, held: int, tasks: int) -> Reason:
    detail = {"tenant": tenant.name, "held": held, "requested": tasks, "bound": tenant.max_nodes}
    return Reason(Code.TENANT_NODES, {**detail, "enough": held + tasks})


def publish_budgets(state: State, fractions: dict[str, float]) -> None:
    """Store the used part of each tenant's budget; tenants without a budget are not in it."""
    state.budgets = dict(sorted(fractions.items()))

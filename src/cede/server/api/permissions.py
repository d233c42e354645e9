"""The role that each route asks for: the one table (C2).

A route that is not in it is denied to all callers, so a new route does not work until its
permission is decided. `cost` is what a call takes from its token's budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from cede.model import bounds
from cede.model.token import Role

API = "/api/v1"


class Body(NamedTuple):
    """The largest body that a route takes; `values` None: its values are neither counted nor
    built here."""

    size: int
    values: int | None


SMALL = Body(bounds.SMALL_BODY_BYTES_MAX, bounds.VALUES_MAX)
# Arguments and environment of work, or names of many nodes.
MEDIUM = Body(bounds.BODY_BYTES_MAX // 2, bounds.VALUES_MAX)
LARGE = Body(bounds.BODY_BYTES_MAX, bounds.MANY_VALUES_MAX)
UNREAD = Body(bounds.BODY_BYTES_MAX, None)


@dataclass(frozen=True, slots=True)
class Permission:
    """`role` None is for all callers, also without a token; `also` is a role that may call it in
    addition.

    `whole` asks for a token that is bound to no subject, because the answer names those of all.
    Calls that keep leases have budgets of their own, apart from `all` other calls. `waits` is for
    calls that take long and do little: they wait for an agent, an event, or a process of their own.
    """

    role: Role | None
    cost: int = 1
    whole: bool = False
    budget: str = "all"
    also: Role | None = None
    body: Body = SMALL
    waits: bool = False

    @property
    def gated(self) -> bool:
        """Whether the call waits for a place among the others; calls that keep leases never do."""
        return self.role is not None and self.budget == "all" and not self.waits

    def allows(self, role: Role) -> bool:
        return self.role is None or role.covers(self.role) or role is self.also


_OPEN = Permission(None, cost=0)
_READ = Permission(Role.VIEWER)
_LIST = Permission(Role.VIEWER, cost=5)
_WAIT = Permission(Role.VIEWER, cost=5, waits=True)
_SUBMIT = Permission(Role.SUBMITTER)
_OPERATE = Permission(Role.OPERATOR)
_ADMIN = Permission(Role.ADMIN)
_AGENT = Permission(Role.NODE, budget="beat", body=LARGE)

PERMISSIONS: dict[tuple[str, str], Permission] = {
    ("GET", "/"): _OPEN,
    ("GET", "/page.js"): _OPEN,
    ("GET", "/page.css"): _OPEN,
    ("GET", "/healthz"): _OPEN,
    ("GET", "/readyz"): _OPEN,
    ("GET", "/version"): _OPEN,
    ("GET", "/metrics"): Permission(Role.VIEWER, cost=50, whole=True),
    ("GET", f"{API}/openapi.json"): _LIST,
    ("GET", f"{API}/whoami"): _READ,
    ("GET", f"{API}/pools"): _WAIT,
    ("POST", f"{API}/pools"): _OPERATE,
    ("GET", f"{API}/pools/{{pool}}"): Permission(Role.VIEWER, waits=True),
    ("PATCH", f"{API}/pools/{{pool}}"): _OPERATE,
    ("DELETE", f"{API}/pools/{{pool}}"): _OPERATE,
    ("POST", f"{API}/pools/{{pool}}/enable"): _OPERATE,
    ("GET", f"{API}/pools/{{pool}}/requests"): _WAIT,
    ("GET", f"{API}/status"): Permission(Role.VIEWER, cost=50, waits=True),
    ("GET", f"{API}/pools/{{pool}}/queue"): Permission(Role.VIEWER, cost=50, waits=True),
    ("GET", f"{API}/pools/{{pool}}/holders"): Permission(Role.VIEWER, cost=50, waits=True),
    ("GET", f"{API}/pools/{{pool}}/shares"): Permission(Role.VIEWER, cost=200, waits=True),
    ("GET", f"{API}/policies"): _WAIT,
    ("POST", f"{API}/policies"): replace(_OPERATE, body=MEDIUM),
    ("GET", f"{API}/policies/{{policy}}"): _READ,
    ("PATCH", f"{API}/policies/{{policy}}"): replace(_OPERATE, body=MEDIUM),
    ("DELETE", f"{API}/policies/{{policy}}"): _OPERATE,
    ("GET", f"{API}/tenants"): Permission(Role.VIEWER, cost=20, whole=True),
    ("POST", f"{API}/tenants"): _OPERATE,
    ("GET", f"{API}/tenants/{{tenant}}"): Permission(Role.VIEWER, cost=20, whole=True),
    ("PATCH", f"{API}/tenants/{{tenant}}"): _OPERATE,
    ("DELETE", f"{API}/tenants/{{tenant}}"): _OPERATE,
    ("GET", f"{API}/usage"): Permission(Role.VIEWER, cost=100),
    ("GET", f"{API}/history"): Permission(Role.VIEWER, cost=20),
    ("GET", f"{API}/pools/{{pool}}/history"): Permission(Role.VIEWER, cost=20),
    ("GET", f"{API}/nodes"): _LIST,
    ("GET", f"{API}/nodes/{{node}}"): _READ,
    ("POST", f"{API}/nodes/{{node}}/drain"): _OPERATE,
    ("POST", f"{API}/nodes/{{node}}/undrain"): _OPERATE,
    ("POST", f"{API}/nodes/{{node}}/disable"): _OPERATE,
    ("POST", f"{API}/nodes/{{node}}/enable"): _OPERATE,
    ("DELETE", f"{API}/nodes/{{node}}"): _OPERATE,
    # For the caller itself, where its policy allows sensitive work; operators also for others.
    ("POST", f"{API}/nodes/claim"): Permission(Role.SUBMITTER, cost=10, body=MEDIUM),
    ("POST", f"{API}/nodes/unclaim"): Permission(Role.SUBMITTER, cost=10, body=MEDIUM),
    ("POST", f"{API}/agent/register"): Permission(
        Role.JOIN, cost=50, budget="beat", also=Role.NODE, body=MEDIUM
    ),
    ("POST", f"{API}/agent/heartbeat"): _AGENT,
    ("POST", f"{API}/bridge/register"): Permission(
        Role.JOIN, cost=50, budget="beat", also=Role.NODE, body=LARGE
    ),
    ("GET", f"{API}/requests"): _WAIT,
    ("POST", f"{API}/requests"): replace(_SUBMIT, body=MEDIUM),
    ("POST", f"{API}/requests/bulk"): Permission(Role.SUBMITTER, cost=10, body=LARGE),
    ("GET", f"{API}/requests/{{id}}"): _READ,
    ("PATCH", f"{API}/requests/{{id}}"): _SUBMIT,
    ("DELETE", f"{API}/requests/{{id}}"): _SUBMIT,
    ("POST", f"{API}/requests/{{id}}/renew"): Permission(Role.SUBMITTER, budget="renew"),
    ("POST", f"{API}/requests/{{id}}/said"): Permission(Role.SUBMITTER, budget="renew"),
    ("GET", f"{API}/requests/{{id}}/logs"): _WAIT,
    ("POST", f"{API}/requests/{{id}}/release"): _SUBMIT,
    ("POST", f"{API}/requests/{{id}}/hand-over"): _SUBMIT,
    ("POST", f"{API}/requests/{{id}}/cancel"): _SUBMIT,
    ("GET", f"{API}/requests/{{id}}/why"): _WAIT,
    ("GET", f"{API}/events"): _WAIT,
    ("GET", f"{API}/snapshot"): Permission(Role.OPERATOR, cost=200, waits=True),
    ("POST", f"{API}/plan"): Permission(Role.VIEWER, cost=500, body=UNREAD, waits=True),
    ("GET", f"{API}/configuration"): Permission(Role.OPERATOR, cost=50, waits=True),
    ("POST", f"{API}/configuration"): Permission(Role.OPERATOR, cost=100, body=LARGE),
    ("POST", f"{API}/links"): _READ,
    ("POST", f"{API}/links/open"): Permission(None, cost=10),
    ("GET", f"{API}/tokens"): _ADMIN,
    ("POST", f"{API}/tokens"): _ADMIN,
    ("GET", f"{API}/tokens/{{id}}"): _ADMIN,
    ("DELETE", f"{API}/tokens/{{id}}"): _ADMIN,
    ("GET", f"{API}/audit"): _ADMIN,
    # The answer names entries by number and contains nothing of them.
    ("GET", f"{API}/audit/verify"): Permission(Role.OPERATOR, cost=100),
}


def permission_for(method: str, path: str) -> Permission | None:
    """Return the permission of a route by its template; None denies."""
    return PERMISSIONS.get((method, path))

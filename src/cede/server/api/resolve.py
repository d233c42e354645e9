"""From what people type (a name, an id, the start of an id) to the one thing that it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from cede.engine.state.state import State
from cede.model.errors import Conflict, NotFound
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.tenant import Tenant

T = TypeVar("T")


def pool_in(state: State, ref: str) -> Pool:
    found = state.pools.get(ref)
    if found is not None:
        return found
    for pool in state.pools.values():
        if pool.name == ref:
            return pool
    return _by_start(state.pools, "pool", ref)


def tenant_in(state: State, ref: str) -> Tenant:
    found = state.tenants.get(ref) or state.tenancy.named.get(ref)
    return found or _by_start(state.tenants, "tenant", ref)


def policy_in(state: State, ref: str) -> Policy:
    return state.policies.get(ref) or _by_start(state.policies, "policy", ref)


def _by_start(table: Mapping[str, T], kind: str, ref: str) -> T:
    found = [id_ for id_ in table if id_.startswith(ref)]
    if not found:
        raise NotFound(kind, ref)
    if len(found) > 1:
        some = ", ".join(sorted(found)[:3])
        raise Conflict("ambiguous", f"{ref!r} is the start of several ids: {some}")
    return table[found[0]]

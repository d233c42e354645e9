"""Resolves what people type (a name, an id or a part of it) to one pool, policy or tenant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from cede.engine.state.state import State
from cede.model.errors import NotFound
from cede.model.ids import ambiguous, ends_with
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.tenant import Tenant

T = TypeVar("T", Pool, Policy, Tenant)


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
    found = started_by(table, ref)
    if not found:
        raise NotFound(kind, ref, [each.name for each in table.values()])
    if len(found) > 1:
        raise ambiguous(ref, found)
    return table[found[0]]


def started_by(ids: Iterable[str], ref: str) -> list[str]:
    """Return the ids whose short form `ref` starts; where there are none, those that start with
    it."""
    known = sorted(ids)
    short = [id_ for id_ in known if ends_with(id_, ref)]
    return short or [id_ for id_ in known if id_.startswith(ref)]

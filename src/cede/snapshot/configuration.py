"""Pools, policies and tenants as data that people keep in files: the output of `cede export`, the
input of `cede apply`.

It is the declared part of a snapshot, in the same words. A missing field has its default, so that a
file describes everything completely.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cede.engine.admin.edits import parse_description
from cede.engine.admin.presets import DEFAULT, PRESETS, preset
from cede.engine.state.state import State
from cede.model.amounts import parse_amounts
from cede.model.configuration import (
    KINDS,
    Configuration,
    WantedPolicy,
    WantedPool,
    WantedTenant,
)
from cede.model.errors import Invalid
from cede.model.fields import fields_of, read, said
from cede.model.node import parse_labels
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.subject import parse_name
from cede.model.tenant import FIELDS, parse_fields
from cede.snapshot.fields import Entry, SnapshotError, at, entries, entry, subject

POOL = ("name", "preset", "capacity", "nodes", "settings", "description")
POLICY = (
    *("pool", "component", "component_type", "name", "parent"),
    *(each.name for each in fields_of(Policy)),
)
TENANT = ("name", *FIELDS)
_USUAL_POLICY = {each.attribute: each.default for each in fields_of(Policy)}
_USUAL_TENANT: dict[str, Any] = dict.fromkeys(FIELDS)


def read_configuration(data: object) -> Configuration:
    """The declared configuration; a `SnapshotError` has the place of the first error."""
    top = entry(data, "", KINDS)
    given = {name: entries(top, name) for name in KINDS if top.get(name) is not None}
    pools = [_pool(path, each) for path, each in given.get("pools", ())]
    policies = [_policy(path, each) for path, each in given.get("policies", ())]
    tenants = [_tenant(path, each) for path, each in given.get("tenants", ())]
    _refuse_twins(((each.path, f"pool {each.name}") for each in pools), "name")
    _refuse_twins(
        ((each.path, f"the policy of {each.subject} in pool {each.pool}") for each in policies),
        "component",
    )
    _refuse_twins(((each.path, f"tenant {each.name}") for each in tenants), "name")
    return Configuration(
        tuple(pools) if "pools" in given else None,
        tuple(policies) if "policies" in given else None,
        tuple(tenants) if "tenants" in given else None,
    )


def show_configuration(state: State) -> dict[str, Any]:
    """The declarations that describe this state, in an order that does not depend on its
    history.
    """
    pools = sorted(state.pools.values(), key=lambda each: each.name)
    policies = sorted(
        state.policies.values(),
        key=lambda each: (state.pools[each.pool_id].name, _depth(state, each), each.subject),
    )
    tenants = sorted(state.tenants.values(), key=lambda each: each.name)
    return {
        "pools": [_show_pool(each) for each in pools],
        "policies": [_show_policy(state, each) for each in policies],
        "tenants": [{"name": each.name, **said(each)} for each in tenants],
    }


def _pool(path: str, value: object) -> WantedPool:
    fields = entry(value, path, POOL)
    with at(path):
        kind = fields.get("preset", DEFAULT)
        base = preset(kind)
        capacity, nodes = fields.get("capacity"), fields.get("nodes")
        name = parse_name(fields.get("name"), "name")
        if (capacity is None) == (nodes is None):
            raise Invalid("capacity", "give either capacity or nodes (labels of its nodes)")
        return WantedPool(
            path=path,
            name=name,
            capacity=None
            if capacity is None
            else parse_amounts(capacity, "capacity", least=1, empty=False),
            nodes=None if nodes is None else parse_labels(nodes, "nodes"),
            preset=str(kind),
            settings=base.override(_given(fields, "settings", {})),
            description=parse_description(_given(fields, "description", "")),
        )


def _policy(path: str, value: object) -> WantedPolicy:
    fields = entry(value, path, POLICY)
    with at(path):
        whose = subject(fields)
        parent = fields.get("parent")
        return WantedPolicy(
            path=path,
            pool=parse_name(fields.get("pool"), "pool"),
            subject=whose,
            name=parse_name(_given(fields, "name", whose.name), "name"),
            parent=None if parent is None else parse_name(parent, "parent"),
            fields=_USUAL_POLICY | read(Policy, fields),
        )


def _tenant(path: str, value: object) -> WantedTenant:
    fields = entry(value, path, TENANT)
    with at(path):
        name = parse_name(fields.get("name"), "name")
        bounds = {key: each for key, each in fields.items() if key != "name"}
        parse_fields(bounds)
        return WantedTenant(path, name, _USUAL_TENANT | bounds)


def _given(fields: Entry, name: str, usual: Any) -> Any:
    return usual if fields.get(name) is None else fields[name]


def _refuse_twins(declared: Iterable[tuple[str, str]], field: str) -> None:
    seen: dict[str, None] = {}
    for path, what in declared:
        if what in seen:
            raise SnapshotError(f"{path}.{field}", f"{what} is declared twice")
        seen[what] = None


def _show_pool(pool: Pool) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": pool.name}
    if pool.description:
        shown["description"] = pool.description
    if pool.preset != DEFAULT:
        shown["preset"] = pool.preset
    if pool.nodes is None:
        shown["capacity"] = dict(pool.capacity)
    else:
        shown["nodes"] = dict(pool.nodes)
    settings = pool.settings.differences(PRESETS[pool.preset])
    return shown | ({"settings": settings} if settings else {})


def _show_policy(state: State, policy: Policy) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "pool": state.pools[policy.pool_id].name,
        "component": policy.subject.name,
        "component_type": policy.subject.type,
    }
    if policy.name != policy.subject.name:
        shown["name"] = policy.name
    if policy.parent_id is not None:
        shown["parent"] = str(state.policies[policy.parent_id].subject)
    return shown | {name: _plain(value) for name, value in said(policy).items()}


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _depth(state: State, policy: Policy) -> int:
    depth = 0
    while policy.parent_id is not None:
        policy, depth = state.policies[policy.parent_id], depth + 1
    return depth

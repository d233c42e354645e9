"""Edits of pools and policies by operators. No edit leaves a broken configuration (S4), none stops
running work.

A shrunk pool keeps its running work and admits nothing new until it drains; waiters that no pool
can grant any more are paused in the same commit, naming the bound (`lifecycle.pausing`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from cede.engine.admin.checks import check_policy, check_pool, check_settings, policies_of
from cede.engine.admin.membership import gather, reselect
from cede.engine.admin.node_lease import leased, put_leases
from cede.engine.admin.presets import DEFAULT
from cede.engine.admin.presets import preset as preset_settings
from cede.engine.ledger.admit import candidates
from cede.engine.state.state import State
from cede.model import bounds
from cede.model.amounts import Amounts, parse_amounts, total
from cede.model.errors import Conflict, Invalid, NotFound
from cede.model.fields import read
from cede.model.node import parse_labels
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.subject import Subject, parse_name


def create_pool(
    state: State,
    *,
    id: str,
    name: object,
    capacity: object = None,
    nodes: object = None,
    preset: object = DEFAULT,
    settings: object = None,
    description: object = "",
    created: str = "",
) -> Pool:
    """Create a pool with a declared capacity, or with the sum of its `nodes`."""
    base = preset_settings(preset)
    if (capacity is None) == (nodes is None):
        raise Invalid("capacity", "give either capacity or nodes (labels of its nodes)")
    selector = None if nodes is None else parse_labels(nodes, "nodes")
    mine = [] if selector is None else gather(state, selector)
    declared = {} if capacity is None else parse_amounts(capacity, "capacity", least=1, empty=False)
    pool = Pool(
        id=id,
        name=parse_name(name, "name"),
        capacity=total(each.amounts for each in mine) if selector is not None else declared,
        nodes=selector,
        preset=str(preset),
        settings=base.override({} if settings is None else settings),
        description=parse_description(description),
        created=created,
    )
    check_settings(pool)
    if any(each.name == pool.name for each in state.pools.values()):
        raise Conflict("name_taken", f"a pool named {pool.name} exists already")
    state.put(pool)
    for node in mine:
        state.put(leased(state, replace(node, pool_id=pool.id)))
    state.emit("pool_created", pool_id=pool.id, name=pool.name)
    return pool


def set_capacity(state: State, pool: Pool, capacity: Amounts) -> None:
    """Set the capacity of a pool whose nodes have changed."""
    became = replace(pool, capacity=capacity, edited=state.next_index())
    check_pool(state, became)
    state.put(became)
    state.emit("pool_updated", pool_id=pool.id, capacity=dict(capacity))


def update_pool(
    state: State,
    pool_id: str,
    *,
    capacity: object = None,
    nodes: object = None,
    settings: object = None,
    description: object = None,
) -> Pool:
    """Merge capacity (0 removes a key) and settings into a pool; `nodes` replaces the labels of its
    nodes.
    """
    pool = find_pool(state, pool_id)
    if capacity is not None and pool.nodes is not None:
        raise Invalid("capacity", f"pool {pool.name} has what its nodes have; add or delete nodes")
    if capacity is not None:
        merged = {**pool.capacity, **parse_amounts(capacity, "capacity")}
        kept = {key: amount for key, amount in merged.items() if amount}
        pool = replace(pool, capacity=kept, edited=state.next_index())
        if not pool.capacity:
            raise Invalid(
                "capacity", "would leave the pool without any key; delete the pool instead"
            )
    if nodes is not None:
        pool = reselect(state, pool, nodes)
    if settings is not None:
        pool = replace(pool, settings=pool.settings.override(settings))
        check_settings(pool)
    if description is not None:
        pool = replace(pool, description=parse_description(description))
    check_pool(state, pool)
    state.put(pool)
    put_leases(state, [each for each in state.nodes.values() if each.pool_id == pool.id])
    state.emit("pool_updated", pool_id=pool.id, capacity=dict(pool.capacity))
    return pool


def delete_pool(state: State, pool_id: str) -> Pool:
    pool = find_pool(state, pool_id)
    _check_idle(state, f"pool {pool.name}", pool.id, None)
    while mine := policies_of(state, pool.id):  # from the lowest up
        parents = {each.parent_id for each in mine}
        for policy in [each for each in mine if each.id not in parents]:
            state.drop(policy)
    for node in [each for each in state.nodes.values() if each.pool_id == pool.id]:
        state.put(leased(state, replace(node, pool_id=None)))
    state.drop(pool)
    state.emit("pool_deleted", pool_id=pool.id, name=pool.name)
    return pool


def attach_policy(
    state: State,
    *,
    id: str,
    pool_id: str,
    subject: Subject,
    name: object = "",
    parent: object = None,
    created: str = "",
    **given: object,
) -> Policy:
    """Give a subject a policy in a pool; its waiting requests may then be granted there. `parent`
    is a policy of that pool, by id or name; `given` are fields as people write them.
    """
    pool = find_pool(state, pool_id)
    whose = parse_name(name or subject.name, "name")
    policy = Policy(
        id=id,
        pool_id=pool_id,
        subject=subject,
        name=whose,
        parent_id=None if parent is None else _parent(state, pool, whose, parent).id,
        created=created,
        **read(Policy, given),
    )
    if any(each.subject == subject for each in policies_of(state, pool_id)):
        raise Conflict("policy_exists", f"{subject} already has a policy in pool {pool.name}")
    check_policy(state, pool, policy)
    state.put(policy)
    state.emit("policy_attached", pool_id=pool_id, policy=policy.name)
    return policy


def _parent(state: State, pool: Pool, whose: str, wanted: object) -> Policy:
    """The parent policy of a new policy named `whose`."""
    found = [each for each in policies_of(state, pool.id) if wanted in (each.id, each.name)]
    if len(found) != 1:
        known = ", ".join(sorted(each.name for each in policies_of(state, pool.id))) or "none"
        many = "more than one policy is" if found else "no policy is"
        where = f"in pool {pool.name}, for {whose} to stand below; it has {known}"
        said = f"{many} named {wanted!r:.80} {where}"
        elsewhere = [each for each in state.policies.values() if wanted in (each.id, each.name)]
        if elsewhere and not found:
            said = f"{wanted} is a policy of pool {state.pools[elsewhere[0].pool_id].name}; {said}"
        raise Invalid("parent", said)
    depth, above = 1, found[0].parent_id
    while above is not None:
        depth, above = depth + 1, state.policies[above].parent_id
    if depth >= bounds.TREE_DEPTH_MAX:
        raise Invalid("parent", f"{found[0].name} is {depth} deep; at most {bounds.TREE_DEPTH_MAX}")
    return found[0]


def update_policy(state: State, policy_id: str, **given: object) -> Policy:
    """Change fields of a policy; a given map replaces the whole old one."""
    policy = replace(find_policy(state, policy_id), **read(Policy, given))
    policy = replace(policy, edited=state.next_index())
    check_policy(state, state.pools[policy.pool_id], policy)
    state.put(policy)
    state.emit("policy_updated", pool_id=policy.pool_id, policy=policy.name)
    return policy


def detach_policy(state: State, policy_id: str) -> Policy:
    policy = find_policy(state, policy_id)
    pool = state.pools[policy.pool_id]
    below = [each.name for each in state.policies.values() if each.parent_id == policy.id]
    if below:
        raise Conflict("has_children", f"policies stand below it: {', '.join(below)}")
    refuse_if_used(state, [policy])
    state.drop(policy)
    state.emit("policy_detached", pool_id=pool.id, policy=policy.name)
    return policy


def find_pool(state: State, pool_id: str) -> Pool:
    if pool_id not in state.pools:
        raise NotFound("pool", pool_id)
    return state.pools[pool_id]


def find_policy(state: State, policy_id: str) -> Policy:
    if policy_id not in state.policies:
        raise NotFound("policy", policy_id)
    return state.policies[policy_id]


def parse_description(value: Any) -> str:
    if not isinstance(value, str) or len(value) > bounds.DESCRIPTION_LENGTH_MAX:
        most = bounds.DESCRIPTION_LENGTH_MAX
        raise Invalid("description", f"must be text of at most {most} characters")
    return value


def refuse_if_used(state: State, policies: Iterable[Policy]) -> None:
    """Refuse to remove policies that requests still wait or hold under."""
    used = {each.policy_id for each in state.allocations.values() if each.live}
    used.update(each.id for request in state.waiting() for each in _waits_under(state, request))
    for policy in policies:
        if policy.id in used:
            pool = state.pools[policy.pool_id]
            what = f"the policy of {policy.subject} in pool {pool.name}"
            _check_idle(state, what, pool.id, policy.id)


def _check_idle(state: State, what: str, pool_id: str, policy_id: str | None) -> None:
    """Refuse to remove a pool or policy that requests still wait for or hold, with the counts."""

    def concerned(policy: Policy) -> bool:
        return policy.pool_id == pool_id and policy_id in (None, policy.id)

    queued = sum(any(map(concerned, _waits_under(state, each))) for each in state.waiting())
    active = sum(
        each.live and concerned(state.policies[each.policy_id])
        for each in state.allocations.values()
    )
    if queued or active:
        raise Conflict(
            "in_use",
            f"{what} is in use: queued={queued}, active={active}; cancel these requests first",
        )


def _waits_under(state: State, request: Request) -> Iterable[Policy]:
    """The policies under which a waiter has a place; for a paused one all that it may use, because
    an edit of any of them may give it a place.
    """
    return state.places(request.id) or candidates(state, request.subject, request.pool_id)

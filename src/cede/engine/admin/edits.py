"""What operators may do to pools and policies. No edit leaves a broken configuration (S4), none
stops running work.

A shrunk pool keeps what runs and admits nothing new until it drains; waiters that no pool can grant
any more are paused in the same commit, naming the bound (`lifecycle.pausing`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

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

# Amounts beside reserved and limit that name keys of the pool.
_SAFE = "non_preemptible_resource_usage_threshold"
_OVER_TIME = ("resource_flow", "burst_guarantee_resources")


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
    """A pool with a declared capacity, or the one that its `nodes` have together."""
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
        description=_description(description),
        created=created,
    )
    _check_keys(pool, f"settings.{_SAFE}", getattr(pool.settings, _SAFE))
    if any(each.name == pool.name for each in state.pools.values()):
        raise Conflict("name_taken", f"a pool named {pool.name} exists already")
    state.put(pool)
    for node in mine:
        state.put(leased(state, replace(node, pool_id=pool.id)))
    state.emit("pool_created", pool_id=pool.id, name=pool.name)
    return pool


def set_capacity(state: State, pool: Pool, capacity: Amounts) -> None:
    """What the nodes of a pool have together has changed."""
    became = replace(pool, capacity=capacity, edited=state.next_index())
    _check_pool(state, became)
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
        _check_keys(pool, f"settings.{_SAFE}", getattr(pool.settings, _SAFE))
    if description is not None:
        pool = replace(pool, description=_description(description))
    _check_pool(state, pool)
    state.put(pool)
    put_leases(state, [each for each in state.nodes.values() if each.pool_id == pool.id])
    state.emit("pool_updated", pool_id=pool.id, capacity=dict(pool.capacity))
    return pool


def delete_pool(state: State, pool_id: str) -> Pool:
    pool = find_pool(state, pool_id)
    _check_idle(state, f"pool {pool.name}", pool.id, None)
    while mine := _policies(state, pool.id):  # from the lowest up
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
    """Give a subject a place in a pool; its waiting requests may then be granted there. `parent` is
    a policy of that pool, by id or name; `given` are fields as people write them.
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
    if any(each.subject == subject for each in _policies(state, pool_id)):
        raise Conflict("policy_exists", f"{subject} already has a policy in pool {pool.name}")
    _check_policy(state, pool, policy)
    state.put(policy)
    state.emit("policy_attached", pool_id=pool_id, policy=policy.name)
    return policy


def _parent(state: State, pool: Pool, whose: str, wanted: object) -> Policy:
    """The policy that `whose` shall stand below."""
    found = [each for each in _policies(state, pool.id) if wanted in (each.id, each.name)]
    if len(found) != 1:
        known = ", ".join(sorted(each.name for each in _policies(state, pool.id))) or "none"
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
    _check_policy(state, state.pools[policy.pool_id], policy)
    state.put(policy)
    state.emit("policy_updated", pool_id=policy.pool_id, policy=policy.name)
    return policy


def detach_policy(state: State, policy_id: str) -> Policy:
    policy = find_policy(state, policy_id)
    pool = state.pools[policy.pool_id]
    below = [each.name for each in state.policies.values() if each.parent_id == policy.id]
    if below:
        raise Conflict("has_children", f"policies stand below it: {', '.join(below)}")
    _check_idle(state, f"the policy of {policy.subject} in pool {pool.name}", pool.id, policy.id)
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


def _policies(state: State, pool_id: str) -> list[Policy]:
    return [each for each in state.policies.values() if each.pool_id == pool_id]


def _description(value: Any) -> str:
    if not isinstance(value, str) or len(value) > bounds.DESCRIPTION_LENGTH_MAX:
        most = bounds.DESCRIPTION_LENGTH_MAX
        raise Invalid("description", f"must be text of at most {most} characters")
    return value


def _check_pool(state: State, pool: Pool) -> None:
    """Refuse a capacity under which an existing policy would be broken, naming the policy."""
    policies = _policies(state, pool.id)
    for policy in policies:
        for which, amounts in (("reserved", policy.reserved), ("limit", policy.limit)):
            for key, amount in amounts.items():
                most = pool.capacity.get(key)
                if most is None or amount > most:
                    left = "no such key" if most is None else f"only {most}"
                    raise Conflict(
                        "policy_would_break",
                        f"{which} of policy {policy.name} is {amount} {key}, and pool {pool.name} "
                        f"would have {left}; change that policy first",
                    )
    _check_sum(pool, policies)


def _check_policy(state: State, pool: Pool, policy: Policy) -> None:
    _check_amounts(pool, policy)
    _check_keys(pool, f"settings.{_SAFE}", policy.settings.get(_SAFE, {}))
    for name in _OVER_TIME:
        _check_keys(pool, f"integral.{name}", policy.integral.get(name, {}))
    for key, amount in policy.reserved.items():
        if amount > policy.limit.get(key, amount):
            raise Invalid(
                f"reserved.{key}", f"{amount} exceeds the policy's limit {policy.limit[key]}"
            )
    _check_home(state, policy)
    others = [each for each in _policies(state, pool.id) if each.id != policy.id]
    _check_sum(pool, [*others, policy], of=policy)


def _check_keys(pool: Pool, which: str, amounts: Amounts) -> None:
    """A key that there is not is a slip of the pen, and would not do what was meant. What a pool of
    nodes will have is not known before it has one.
    """
    for key in amounts if pool.capacity else ():
        if key not in pool.capacity:
            known = ", ".join(sorted(pool.capacity))
            raise Invalid(f"{which}.{key}", f"pool {pool.name} has no such key; it has {known}")


def _check_amounts(pool: Pool, policy: Policy) -> None:
    """A policy's amounts are of what the pool has now (S4): nodes that are yet to come have none,
    and may never come.
    """
    for which, amounts in (("reserved", policy.reserved), ("limit", policy.limit)):
        for key, amount in amounts.items():
            at, known = f"{which}.{key}", ", ".join(sorted(pool.capacity))
            if pool.nodes is not None and not pool.capacity:
                raise Invalid(at, _no_nodes(pool, policy.subject, which))
            if key not in pool.capacity:
                raise Invalid(at, f"pool {pool.name} has no such key; it has {known}")
            if amount > (most := pool.capacity[key]):
                so_far = "" if pool.nodes is None else ", which is what its nodes have so far"
                raise Invalid(at, f"{amount} exceeds the pool's capacity {most}{so_far}")


def _no_nodes(pool: Pool, subject: Subject, which: str) -> str:
    labels = " ".join(f"--label {name}={text}" for name, text in (pool.nodes or {}).items())
    return (
        f"no node has joined pool {pool.name} yet, and {which} is of what its nodes have: start an "
        f"agent first (cede agent {labels} …), or attach the policy without it and set it then: "
        f"cede policy update {pool.name} {subject.name} --component-type {subject.type} --{which} …"
    )


def _check_home(state: State, policy: Policy) -> None:
    """A node is one policy's own."""
    if policy.home is None:
        return
    nodes = [each for each in state.nodes.values() if each.pool_id == policy.pool_id]
    for other in _policies(state, policy.pool_id):
        if other.id == policy.id or other.home is None:
            continue
        for node in nodes:
            if other.home.has(node.name, node.labels) and policy.home.has(node.name, node.labels):
                raise Invalid("home", f"node {node.name} is the home of policy {other.name}")


def _check_sum(pool: Pool, policies: list[Policy], of: Policy | None = None) -> None:
    """What is reserved side by side is within what there is above: the pool's, or the parent's.
    `of`: only this policy has changed, so only its siblings and those below it may be too many.
    """
    concerned = None if of is None else (of.parent_id, of.id)
    beside: dict[str | None, list[Policy]] = {}
    for each in policies:
        if concerned is None or each.parent_id in concerned:
            beside.setdefault(each.parent_id, []).append(each)
    above = {each.id: each for each in policies}
    for parent_id, siblings in beside.items():
        if parent_id is None:
            _check_siblings(pool.capacity, "capacity", f"pool {pool.name}", siblings)
        else:
            parent = above[parent_id]
            _check_siblings(parent.reserved, "reserved", parent.name, siblings)


def _check_siblings(most: Amounts, what: str, whose: str, siblings: list[Policy]) -> None:
    for key, reserved in total(each.reserved for each in siblings).items():
        if reserved > most.get(key, 0):
            names = ", ".join(each.name for each in siblings if each.reserved.get(key))
            raise Invalid(
                f"reserved.{key}",
                f"policies {names} would reserve {reserved} {key} together, more than the {what} "
                f"{most.get(key, 0)} of {whose}",
            )


def _check_idle(state: State, what: str, pool_id: str, policy_id: str | None) -> None:
    """Refuse to remove what requests still queue for or hold, with the counts."""

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
    """The policies that a waiter has a place under; those that it may use at all if it is paused,
    because an edit of any of them may give it one.
    """
    return state.places(request.id) or candidates(state, request.subject, request.pool_id)

"""Checks that pools and their policies fit each other (S4). An edit checks its own change; `apply`
checks whole pools at the end, so that the order of its edits does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cede.engine.state.state import State
from cede.model.amounts import Amounts, total
from cede.model.errors import Conflict, Invalid
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.subject import Subject

# Amounts beside reserved and limit that name keys of the pool.
_SAFE = "non_preemptible_resource_usage_threshold"
_OVER_TIME = ("resource_flow", "burst_guarantee_resources")


class Misfit(NamedTuple):
    """An error of a pool's configuration: of one policy, or of several that are too many
    together.
    """

    policies: tuple[Policy, ...]
    error: Invalid


def policies_of(state: State, pool_id: str) -> list[Policy]:
    return [each for each in state.policies.values() if each.pool_id == pool_id]


def misfits(state: State, pool: Pool) -> Iterator[Misfit]:
    """All errors of a pool's configuration."""
    policies = policies_of(state, pool.id)
    for policy in policies:
        try:
            check_alone(pool, policy)
        except Invalid as error:
            yield Misfit((policy,), error)
    yield from _shared_homes(state, pool, policies)
    yield from _overbooked(pool, policies)


def check_pool(state: State, pool: Pool) -> None:
    """Refuse a capacity that an existing policy does not fit, naming the policy."""
    policies = policies_of(state, pool.id)
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
    _refuse(_overbooked(pool, policies))


def check_policy(state: State, pool: Pool, policy: Policy) -> None:
    """Refuse a policy that does not fit its pool or the other policies there."""
    check_alone(pool, policy)
    others = [each for each in policies_of(state, pool.id) if each.id != policy.id]
    shared = _shared_homes(state, pool, [*others, policy]) if policy.home is not None else ()
    _refuse(each for each in shared if each.policies == (policy,))
    _refuse(_overbooked(pool, [*others, policy], of=policy))


def check_alone(pool: Pool, policy: Policy) -> None:
    """Refuse a policy that does not fit its pool, regardless of other policies."""
    _check_amounts(pool, policy)
    _check_keys(pool, f"settings.{_SAFE}", policy.settings.get(_SAFE, {}))
    for name in _OVER_TIME:
        _check_keys(pool, f"integral.{name}", policy.integral.get(name, {}))
    for key, amount in policy.reserved.items():
        if amount > policy.limit.get(key, amount):
            raise Invalid(
                f"reserved.{key}", f"{amount} exceeds the policy's limit {policy.limit[key]}"
            )


def check_settings(pool: Pool) -> None:
    """Refuse amounts in a pool's own settings for keys that it does not have."""
    _check_keys(pool, f"settings.{_SAFE}", getattr(pool.settings, _SAFE))


def _refuse(found: Iterable[Misfit]) -> None:
    for misfit in found:
        raise misfit.error


def _check_keys(pool: Pool, which: str, amounts: Amounts) -> None:
    """Refuse a key that the pool does not have: it is a typing error, and would have no effect. The
    keys of a pool of nodes are unknown until it has a node.
    """
    for key in amounts if pool.capacity else ():
        if key not in pool.capacity:
            known = ", ".join(sorted(pool.capacity))
            raise Invalid(f"{which}.{key}", f"pool {pool.name} has no such key; it has {known}")


def _check_amounts(pool: Pool, policy: Policy) -> None:
    """Refuse amounts beyond what the pool has now (S4): future nodes do not count, because they may
    never come.
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


def _shared_homes(state: State, pool: Pool, policies: list[Policy]) -> Iterator[Misfit]:
    """The misfit of each node that is the home of several policies: the last of these policies is
    the wrong one.
    """
    at_home = [(each, each.home) for each in policies if each.home is not None]
    if len(at_home) < 2:
        return
    for node in state.nodes.values():
        if node.pool_id != pool.id:
            continue
        owners = [each for each, home in at_home if home.has(node.name, node.labels)]
        if len(owners) > 1:
            problem = f"node {node.name} is the home of policy {owners[0].name}"
            yield Misfit((owners[-1],), Invalid("home", problem))


def _overbooked(pool: Pool, policies: list[Policy], of: Policy | None = None) -> Iterator[Misfit]:
    """The policies that reserve more side by side than the pool or the parent has.

    With `of` only that policy has changed, so only its siblings and the policies below it are
    checked.
    """
    concerned = None if of is None else (of.parent_id, of.id)
    beside: dict[str | None, list[Policy]] = {}
    for each in policies:
        if concerned is None or each.parent_id in concerned:
            beside.setdefault(each.parent_id, []).append(each)
    above = {each.id: each for each in policies}
    for parent_id, siblings in beside.items():
        if parent_id is None:
            yield from _too_many(pool.capacity, "capacity", f"pool {pool.name}", siblings)
        else:
            parent = above[parent_id]
            yield from _too_many(parent.reserved, "reserved", parent.name, siblings)


def _too_many(most: Amounts, what: str, whose: str, siblings: list[Policy]) -> Iterator[Misfit]:
    for key, reserved in total(each.reserved for each in siblings).items():
        if reserved > most.get(key, 0):
            some = tuple(each for each in siblings if each.reserved.get(key))
            problem = (
                f"policies {', '.join(each.name for each in some)} would reserve {reserved} {key} "
                f"together, more than the {what} {most.get(key, 0)} of {whose}"
            )
            yield Misfit(some, Invalid(f"reserved.{key}", problem))

"""Refuse at the door what can never be satisfied (documents 001 and 002; L8).

Only capacity, limit and reserved are looked at, never what is in use now: a request that passes may
wait, one that does not never could be granted. The same judgement is made again when an operator
edits a pool or a policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cede.model.amounts import Amounts
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.reason import Code, Reason
from cede.model.request import Request
from cede.model.subject import Subject

if TYPE_CHECKING:
    from cede.engine.state import State


def refusals(pool: Pool, policy: Policy, amounts: Amounts, preemptible: bool) -> list[Reason]:
    """Every bound that the whole request breaks in this pool; none when it may queue here."""
    found = []
    for key, requested in sorted(amounts.items()):
        if not requested or not pool.bounds_key(key):
            continue
        capacity = pool.capacity.get(key, 0)
        limit = policy.limit.get(key, capacity)
        reserved = policy.reserved.get(key, 0)
        if requested > capacity:
            code, bound = Code.CAPACITY_EXCEEDED, capacity
        elif requested > limit:
            code, bound = Code.LIMIT_EXCEEDED, limit
        elif not preemptible and requested > reserved:
            code, bound = Code.RESERVED_EXCEEDED, reserved
        else:
            continue
        names = {"pool": pool.name, "policy": policy.name, "key": key}
        found.append(Reason(code, {**names, "requested": requested, "bound": bound}))
    return found


def candidates(state: State, subject: Subject, pool_id: str | None) -> list[Policy]:
    """The policies a request could use at all: its subject's, in the pool it names if any."""
    policies = state.policies_of(subject)
    if pool_id is None:
        return policies
    return [policy for policy in policies if policy.pool_id == pool_id]


def eligible_policies(state: State, request: Request) -> tuple[Policy, ...]:
    """Where a request may queue, by policy priority."""
    return tuple(
        policy
        for policy in candidates(state, request.subject, request.pool_id)
        if not refusals(state.pools[policy.pool_id], policy, request.amounts, request.preemptible)
    )


def rejection(state: State, request: Request, code: Code = Code.NO_ELIGIBLE_POOL) -> Reason:
    """Why no pool can ever grant this: every refusal; a single one stands for itself."""
    policies = candidates(state, request.subject, request.pool_id)
    if not policies:
        return no_policy(state, request.subject, request.pool_id)
    reasons = [
        reason
        for policy in policies
        for reason in refusals(
            state.pools[policy.pool_id], policy, request.amounts, request.preemptible
        )
    ]
    if len(reasons) == 1 and code is Code.NO_ELIGIBLE_POOL:
        return reasons[0]
    first = reasons[0].detail
    return Reason(code, {"key": first["key"], "pools": [reason.to_dict() for reason in reasons]})


def no_policy(state: State, subject: Subject, pool_id: str | None) -> Reason:
    pool = "any pool" if pool_id is None else f"pool {state.pools[pool_id].name}"
    detail = {"subject": str(subject), "name": subject.name, "type": subject.type}
    return Reason(Code.NO_POLICY, {**detail, "pool": pool})

"""Refuses requests that can never be granted, at submission (documents 001 and 002; L8).

Only bounds and terms are checked, never the present use: a request that passes may wait, one that
does not could never be granted. The check is repeated when an operator edits a pool or a policy,
and when a request's own limit is lowered: a lowered bound may be raised again, so then the request
is paused and not ended.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from cede.engine.nodes.placement import possible
from cede.model.amounts import Amounts, show
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.reason import Code, Reason
from cede.model.request import Request
from cede.model.shape import Shape
from cede.model.subject import Subject
from cede.model.terms import CLASS_DEFAULT, CLASS_MAX, USUAL

if TYPE_CHECKING:
    from cede.engine.state.state import State


def refusals(state: State, policy: Policy, request: Request) -> list[Reason]:
    """Every bound that the whole request breaks in this pool; none when it may queue here."""
    pool = state.pools[policy.pool_id]
    found = own_limit_broken(request) or terms_broken(pool, policy, request)
    found = found or bounds_broken(pool, policy, request.amounts, request.preemptible)
    above = policy.parent_id
    while above is not None and not found:
        found = bounds_broken(pool, state.policies[above], request.amounts, True)
        above = state.policies[above].parent_id
    return found or _sits_nowhere(state, pool, request)


def _sits_nowhere(state: State, pool: Pool, request: Request) -> list[Reason]:
    """The refusal if the pool's nodes could never hold a request, or no agent could start it."""
    inventory = state.inventories.get(pool.id)
    if inventory is None:
        if request.work is None:
            return []
        return [Reason(Code.NO_AGENTS, {"pool": pool.name, "key": "nodes"})]
    shape = request.shape or Shape(request.amounts)
    if possible(inventory, shape.form(pool.metered(shape.amounts))):
        return []
    return [Reason(Code.UNPLACEABLE, {"pool": pool.name, "key": "nodes", **told(shape)})]


def told(shape: Shape) -> dict[str, Any]:
    """The details of a shape, for the sentence of a reason."""
    wanted = [f"{name}={text}" for name, text in sorted(shape.labels.items())]
    if shape.fingerprint:
        wanted.append(f"fingerprint {shape.fingerprint}")
    if shape.per_node is not None:
        wanted.append(f"at most {shape.per_node} to a node")
    return {
        "tasks": shape.tasks,
        "amounts": show(shape.amounts),
        "wanted": f" ({', '.join(wanted)})" if wanted else "",
    }


def own_limit_broken(request: Request) -> list[Reason]:
    """A refusal for each key of which a request asks for more than its own limit."""
    limit = request.terms.limit
    if not limit:
        return []
    asked = sorted(request.amounts.items())
    return [
        Reason(Code.REQUEST_LIMIT, {"key": key, "requested": amount, "bound": limit[key]})
        for key, amount in asked
        if amount > limit.get(key, amount)
    ]


def terms_broken(pool: Pool, policy: Policy, request: Request) -> list[Reason]:
    """A refusal if a request asks for a class, or a protection, that its policy does not allow."""
    terms = request.terms
    if terms is USUAL and policy.max_class >= CLASS_DEFAULT:
        return []
    names = {"pool": pool.name, "policy": policy.name, "key": "class"}
    found = []
    if terms.preemption_class > policy.max_class:
        detail = {"requested": terms.preemption_class, "bound": policy.max_class}
        found.append(Reason(Code.CLASS_EXCEEDED, {**names, **detail}))
    if not policy.allow_sensitive and (terms.sensitive or terms.preemption_class == CLASS_MAX):
        what = "sensitive: true" if terms.sensitive else f"class {CLASS_MAX}"
        found.append(Reason(Code.SENSITIVE_NOT_ALLOWED, {**names, "what": what}))
    return found


def bounds_broken(pool: Pool, policy: Policy, amounts: Amounts, preemptible: bool) -> list[Reason]:
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
    """The policies that a request could use at all: its subject's, in the pool it names, if any."""
    policies = state.policies_of(subject)
    if pool_id is None:
        return policies
    return [policy for policy in policies if policy.pool_id == pool_id]


def paused(state: State, request: Request) -> bool:
    """Whether no pool can grant a waiter as its bounds are now: it is in no queue."""
    return request.waiting and not state.places(request.id)


def pause_reason(state: State, request: Request) -> Reason:
    """Why a waiter is paused: its own limit, or the bounds of its pools."""
    own = own_limit_broken(request)
    return own[0] if own else rejection(state, request, Code.NO_LONGER_ELIGIBLE)


def eligible_policies(state: State, request: Request) -> tuple[Policy, ...]:
    """The policies under which a request may queue, by priority."""
    return tuple(
        [
            policy
            for policy in candidates(state, request.subject, request.pool_id)
            if state.ledgers[policy.pool_id].admits(
                policy.id, request, partial(_passes, state, policy, request)
            )
        ]
    )


def _passes(state: State, policy: Policy, request: Request) -> bool:
    return not refusals(state, policy, request)


def rejection(state: State, request: Request, code: Code = Code.NO_ELIGIBLE_POOL) -> Reason:
    """Why no pool can ever grant a request: all refusals, or the only one itself."""
    policies = candidates(state, request.subject, request.pool_id)
    if not policies:
        return no_policy(state, request.subject, request.pool_id)
    reasons = [reason for policy in policies for reason in refusals(state, policy, request)]
    if all(each == reasons[0] for each in reasons) and code is Code.NO_ELIGIBLE_POOL:
        return reasons[0]
    first = reasons[0].detail
    return Reason(code, {"key": first["key"], "pools": [reason.to_dict() for reason in reasons]})


def no_policy(state: State, subject: Subject, pool_id: str | None) -> Reason:
    pool = "any pool" if pool_id is None else f"pool {state.pools[pool_id].name}"
    detail = {"subject": str(subject), "name": subject.name, "type": subject.type}
    return Reason(Code.NO_POLICY, {**detail, "pool": pool})

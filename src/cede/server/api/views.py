"""From the model's values to the JSON that callers see; by hand, for every answer passes here."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace
from typing import NamedTuple

from cede.engine.admin.presets import PRESETS
from cede.engine.explain.contents import Contents
from cede.engine.lifecycle.commands import Submission
from cede.engine.state.changes import Event
from cede.engine.state.state import State
from cede.model.allocation import Allocation, allocation_id
from cede.model.amounts import Amounts
from cede.model.durations import seconds
from cede.model.fields import shown
from cede.model.policy import Policy
from cede.model.reason import Reason
from cede.model.request import PLAIN, Request
from cede.model.settings import Settings, shown_own
from cede.model.terms import USUAL, Terms
from cede.model.token import Token, name_in
from cede.server.api.json_type import Json
from cede.server.api.node_views import (
    Naming,
    ask_out,
    member_out,
    shape_out,
    stop_progress_out,
    work_out,
)
from cede.store import AuditEntry, PolicyView

# A command for a list: enough to know it again.
_COMMAND_MAX = 200


class Scene(NamedTuple):
    """The surroundings of a shown request: names of pools and nodes by id, and the instant. A
    deleted one is shown by its id.
    """

    pool: Naming
    node: Naming
    now: int


_NOWHERE = Scene(str, str, 0)
_SETTINGS = tuple(each.name for each in fields(Settings))


def pool_out(view: Contents) -> Json:
    pool = view.pool
    return {
        "id": pool.id,
        "name": pool.name,
        "description": pool.description,
        "preset": pool.preset,
        "capacity": dict(pool.capacity),
        "nodes": None if pool.nodes is None else dict(pool.nodes),
        "occupied": _over(pool.capacity, view.occupied),
        "free": {
            key: max(0, most - view.occupied.get(key, 0)) for key, most in pool.capacity.items()
        },
        "earmarked": dict(view.earmarked),
        "queued": view.queued,
        "active": view.active,
        "quarantined": pool.quarantine is not None,
        "settings": {name: pool.settings.shown(name) for name in _SETTINGS},
        "own_settings": pool.settings.differences(PRESETS[pool.preset]),
        "created": pool.created,
    }


def policy_out(view: PolicyView) -> Json:
    policy = view.policy
    return {
        "id": policy.id,
        "name": policy.name,
        "pool": view.pool_name,
        "pool_id": policy.pool_id,
        "component": policy.subject.name,
        "component_type": policy.subject.type,
        "parent_id": policy.parent_id,
        **shown(policy),
        "occupied": dict(view.occupied),
        "borrowed": _borrowed(policy, view.occupied),
        "created": policy.created,
    }


def request_out(
    request: Request, allocation: Allocation | None, scene: Scene, *, whole: bool = True
) -> Json:
    """A request with its attempt's allocation; `pool` is where it holds, else what it names. In
    lists it is not shown whole: work may be large.
    """
    work, saved = request.work, request.saved
    if allocation is not None and allocation.attempt != request.attempt:
        allocation = None
    live = allocation if allocation is not None and allocation.live else None
    pool_id = live.pool_id if live is not None else request.pool_id
    answer: Json = {
        "id": request.id,
        "component": request.subject.name,
        "component_type": request.subject.type,
        "status": request.status.value,
        "tracked": True,
        "pool": None if pool_id is None else scene.pool(pool_id),
        "resources": dict(request.amounts),
        "preemptible": request.preemptible,
        "attempt": request.attempt,
        "preempted_count": request.preempted_count,
        "retry": shown(request.retry),
        "lease": seconds(request.lease),
        "owner": name_in(request.owner),
        "created": request.created,
        "submitted_at": seconds(request.submitted_at),
        "reason": None if request.reason is None else request.reason.to_public(),
        "earmark": None
        if request.earmark is None
        else {"pool": scene.pool(request.earmark.pool_id)},
        "allocation": None if allocation is None else allocation_out(allocation, scene),
        "index": request.index,
        "tasks": request.tasks,
        "part_of": request.part_of,
        "array_task": request.array_task,
        "shape": shape_out(request),
        "command": None if work is None else shlex.join(work.argv)[:_COMMAND_MAX],
        "work": None if work is None or not whole else work_out(work),
        "saved": None
        if saved is None
        else {"id": saved.id, "at": seconds(saved.at), "size": saved.size},
        "lost_count": request.lost_count,
    }
    answer |= shown(request)
    answer |= _PLAIN if request.stop_policy is PLAIN else shown(request.stop_policy)
    answer |= _USUAL if request.terms is USUAL else terms_out(request.terms)
    return answer


def terms_out(terms: Terms) -> Json:
    return shown(terms) | {"settings": shown_own(terms.settings)}


# Shown with nearly every request; nobody changes what is inside.
_PLAIN, _USUAL = shown(PLAIN), terms_out(USUAL)


def live_request_out(state: State, request_id: str) -> Json:
    """A request as the transaction in the making leaves it, also if it ends with it."""
    request = state.requests[request_id]
    allocation = state.allocation_of(request_id)
    if allocation is None:
        allocation = state.allocations.get(allocation_id(request_id, request.attempt))
    return request_out(request, allocation, _scene(state))


def _scene(state: State) -> Scene:
    return Scene(
        lambda pool_id: state.pools[pool_id].name,
        lambda node_id: state.nodes[node_id].name if node_id in state.nodes else node_id,
        state.now,
    )


def untracked_out(submission: Submission, reason: Reason) -> Json:
    """The answer to a step that nothing counts: there is no request, so there is no id."""
    request = replace(submission, submitted_at=0, index=0, reason=reason)
    untracked = {"id": None, "status": "untracked", "tracked": False}
    return request_out(request, None, _NOWHERE) | untracked


def allocation_out(allocation: Allocation, scene: Scene) -> Json:
    stop_progress, ask = allocation.stop_progress, allocation.open_ask
    return {
        "id": allocation.id,
        "state": allocation.state.value,
        "pool": scene.pool(allocation.pool_id),
        "attempt": allocation.attempt,
        "allocated_at": seconds(allocation.allocated_at),
        "started_at": seconds(allocation.started_at),
        "ended_at": seconds(allocation.ended_at),
        "deadline": seconds(allocation.deadline),
        "members": [member_out(each, scene.node) for each in allocation.members],
        "parting": None if stop_progress is None else stop_progress_out(stop_progress, scene.now),
        "asked": None if ask is None else ask_out(ask, scene.now),
    }


def event_out(event: Event, time: str) -> Json:
    return {
        "index": event.index,
        "at": seconds(event.at),
        "time": time,
        "kind": event.kind,
        "request_id": event.request_id,
        "pool_id": event.pool_id,
        "data": event.data,
    }


def token_out(token: Token) -> Json:
    """Everything about a token but its secret, which nobody has, and its hash."""
    return {
        "id": token.id,
        "name": token.name,
        "role": str(token.role),
        "subjects": [str(subject) for subject in token.subjects],
        "created": token.created,
        "expires_at": token.expires_at_wall,
        "revoked": token.revoked,
        "uses": token.uses,
    }


def audit_out(entry: AuditEntry) -> Json:
    return {
        "number": entry.number,
        "created": entry.note.created,
        "actor": entry.note.actor,
        "action": entry.note.action,
        "target": entry.note.target,
        "detail": entry.note.detail,
        "previous": entry.previous,
        "hash": entry.hash,
    }


def _over(capacity: Amounts, occupied: Amounts) -> Json:
    """Occupied amounts of every key of the pool, zeros included, and of keys it no longer has."""
    return {key: occupied.get(key, 0) for key in {**capacity, **occupied}}


def _borrowed(policy: Policy, occupied: Amounts) -> Json:
    above = {key: held - policy.reserved.get(key, 0) for key, held in occupied.items()}
    return {key: amount for key, amount in above.items() if amount > 0}

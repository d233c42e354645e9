"""From values to rows and back, exactly.

A row is a plain tuple in the order of the table's columns: the hot path builds nothing else and
looks nothing up by name. A value that is empty or default in nearly every row is NULL, which costs
one byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from sys import intern
from typing import Any

from cede.engine.ledger.tenants import nodes_of
from cede.engine.state.changes import Event
from cede.model.allocation import Allocation, allocation_id
from cede.model.copying import maker, stamp
from cede.model.lifecycle import AllocationState, RequestStatus
from cede.model.policy import Mode, Policy
from cede.model.pool import Pool
from cede.model.reason import Reason
from cede.model.request import Earmark, Request, Retry, Withhold
from cede.model.settings import Settings
from cede.model.subject import Subject
from cede.model.tenant import Tenant
from cede.model.token import Role, Token
from cede.store import answers, node_rows, own_columns, term_rows
from cede.store.arrays import array_of, from_array
from cede.store.digests import LAYOUTS
from cede.store.json_text import decode, encode
from cede.store.node_rows import Row
from cede.store.unread import UnreadMap, UnreadWork
from cede.store.values import AuditEntry, AuditNote, Idempotency, Remembered

# The hash of the audit chain is over this form, so it must not change.
canonical: Callable[[Any], str] = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=True, sort_keys=True
).encode

_request, _allocation = maker(Request), maker(Allocation)
_DEFAULT_RETRY = Retry()
_NO_LABELS: Mapping[str, str] = {}
_STATUS = {str(status): status for status in RequestStatus}
_STATE = {str(state): state for state in AllocationState}


def pool_row(pool: Pool) -> Row:
    settings = pool.settings
    shown = {name: getattr(settings, name) for name in Settings.__dataclass_fields__}
    return (
        pool.id,
        pool.name,
        encode(dict(pool.capacity)),
        pool.preset,
        encode(shown),
        pool.description,
        pool.created,
        pool.edited,
        None if pool.nodes is None else encode(dict(pool.nodes)),
        pool.quarantine,
    )


def pool_from(row: Sequence[Any]) -> Pool:
    id_, name, capacity, preset, settings, description, created, edited, nodes, quarantine = row
    amounts = decode(capacity)
    selector = None if nodes is None else decode(nodes)
    made = Settings.stored(decode(settings))
    return Pool(
        id_, name, amounts, preset, made, description, created, edited, selector, quarantine
    )


def policy_row(policy: Policy) -> Row:
    return (
        policy.id,
        policy.pool_id,
        policy.subject.type,
        policy.subject.name,
        policy.priority,
        encode(dict(policy.reserved)),
        encode(dict(policy.limit)),
        policy.name,
        policy.created,
        policy.edited,
        policy.parent_id,
        policy.weight,
        policy.mode.value,
        term_rows.further_text(policy),
    )


def policy_from(row: Sequence[Any]) -> Policy:
    (
        id_, pool_id, subject_type, subject_name, priority, reserved, limit, name, created, edited,
        parent_id, weight, mode, further,
    ) = row  # fmt: skip
    return Policy(
        id=id_,
        pool_id=pool_id,
        subject=Subject(subject_type, subject_name),
        priority=priority,
        reserved=decode(reserved),
        limit=decode(limit),
        name=name,
        parent_id=parent_id,
        weight=weight,
        mode=Mode(mode),
        created=created,
        edited=edited,
        **term_rows.further_from(further),
    )


def tenant_row(tenant: Tenant) -> Row:
    return (
        tenant.id,
        tenant.name,
        tenant.max_nodes,
        tenant.max_concurrent,
        _fraction(tenant.gpu_hours_budget),
        _fraction(tenant.node_hours_budget),
        _fraction(tenant.fair_share_target),
        _fraction(tenant.burst_allowance),
        tenant.created,
        tenant.edited,
    )


def _fraction(value: float | None) -> float | None:
    """PostgreSQL takes no array in which 0 and 0.25 are of different kinds."""
    return None if value is None else float(value)


def tenant_from(row: Sequence[Any]) -> Tenant:
    return Tenant(*row)


def request_row(request: Request, latest: Allocation | None, now: int = 0) -> Row:
    """The row of a request. `latest` is the newest allocation of this batch, if it has one.

    `now` is the instant of the batch: a request that has ended by then is never written again.
    """
    earmark, withhold = request.earmark, request.withhold
    return (
        request.id,
        request.index,
        request.submitted_at,
        request.subject.type,
        request.subject.name,
        request.created,
        request.status.value,
        request.preemptible,
        request.pool_id,
        latest.pool_id if latest else None,
        latest.attempt if latest else None,
        _amounts(request.amounts),
        _reason(request.reason),
        request.attempt,
        request.retries_used,
        request.preempted_count,
        _retry(request.retry),
        request.not_before,
        request.bypassed,
        encode(array_of(withhold, optional=2)) if withhold else None,
        encode(array_of(earmark, optional=1)) if earmark else None,
        request.lease,
        request.lease_until,
        request.owner,
        node_rows.task_text(request),
        node_rows.work_text(request.work),
        request.part_of,
        node_rows.kept_text(request),
        term_rows.class_number(request.terms),
        request.terms.tenant or None,
        term_rows.terms_text(request.terms),
        now if request.ended else None,
        request.array_task,
        *own_columns.values_of(request),
    )


def request_from(row: Sequence[Any]) -> Request:
    (
        id_, index, submitted_at, subject_type, subject_name, created, status, preemptible, pool_id,
        _, _, amounts, reason, attempt, retries_used, preempted_count, retry, not_before, bypassed,
        withhold, earmark, lease, lease_until, owner, task, work, part_of, kept, class_, tenant,
        terms, _, array_task, *own,
    ) = row  # fmt: skip
    shape, stop_policy = node_rows.task_from(task)
    # In the order of the fields: by name it takes twice as long, and a start makes all requests.
    return _request(
        id_,
        _subject(subject_type, subject_name),
        _amounts_from(amounts),
        submitted_at,
        index,
        _STATUS[status],
        bool(preemptible),
        pool_id,
        None if reason is None else _reason_from(reason),
        attempt,
        retries_used,
        preempted_count,
        _DEFAULT_RETRY if retry is None else _retry_from(retry),
        not_before,
        bypassed,
        from_array(Withhold, decode(withhold)) if withhold else None,
        from_array(Earmark, decode(earmark)) if earmark else None,
        lease,
        lease_until,
        shape,
        None if work is None else node_rows.work_from(work),
        stop_policy,
        *node_rows.kept_from(kept),
        _terms_from(class_, tenant, terms),
        part_of,
        array_task,
        intern(owner),
        created,
        *own_columns.fields_from(own),
    )


# The fields in which requests differ that are alike otherwise; the last two are read later.
_PLAIN = (
    *("id", "submitted_at", "index", "created", "pool_id", "attempt", "retries_used"),
    *("preempted_count", "not_before", "bypassed", "lease", "lease_until", "part_of"),
    *("array_task", "walltime"),
)
_OWN = (*_PLAIN, "work", "labels")
_common, _stamped = stamp(Request, _OWN)
_PLACES = {each.name: at for at, each in enumerate(LAYOUTS["requests"].columns)}
_PLACES["index"] = _PLACES.pop("at_index")
_WORK, _LABELS = _PLACES["work"], _PLACES["labels"]
_plain = itemgetter(*(_PLACES[name] for name in _PLAIN))
# The last three are no part of a value.
_UNLIKE = (*_OWN, "granted_pool_id", "granted_attempt", "ended_at")
_alike = itemgetter(*(at for name, at in _PLACES.items() if name not in _UNLIKE))
_KINDS_MAX = 4_096


def requests_from(many: Iterable[Sequence[Any]]) -> Iterator[Request]:
    """The requests of many rows. Rows that are alike share the values of all fields but their own,
    which are made once.
    """
    kinds: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in many:
        kind = _alike(row)
        common = kinds.get(kind)
        if common is None:
            request = request_from(row)
            if len(kinds) < _KINDS_MAX:
                kinds[kind] = _common(request)
            yield request
            continue
        work, labels = row[_WORK], row[_LABELS]
        own = (
            *_plain(row),
            None if work is None else UnreadWork(work),
            _NO_LABELS if labels is None else UnreadMap(labels),
        )
        yield _stamped(common, own)


def allocation_row(allocation: Allocation, request: Request | None = None) -> Row:
    """The row of an allocation. `request` is needed for a new one only: the columns of the accounts
    never change.
    """
    assert allocation.id == allocation_id(allocation.request_id, allocation.attempt), allocation
    ended = allocation.state is AllocationState.ENDED
    return (
        allocation.request_id,
        allocation.attempt,
        allocation.pool_id,
        allocation.policy_id,
        allocation.index,
        allocation.allocated_at,
        None if ended else 1,
        allocation.state.value,
        _amounts(allocation.amounts),
        allocation.preemptible,
        allocation.started_at,
        allocation.walltime,
        allocation.lease_until,
        allocation.deadline,
        allocation.told,
        allocation.taken_for,
        _reason(allocation.reason),
        allocation.ended_at,
        node_rows.members_text(allocation.members),
        node_rows.hints_text(allocation),
        *_accounted(allocation, request),
        allocation.lost or None,
    )


def _accounted(allocation: Allocation, request: Request | None) -> tuple[str | None, int | None]:
    """The columns of the accounts: the tenant, and the number of nodes if it is not one."""
    if request is None:
        return None, None
    nodes = nodes_of(request, allocation)
    return request.terms.tenant or None, nodes if nodes != 1 else None


def allocation_from(row: Sequence[Any]) -> Allocation:
    (
        request_id, attempt, pool_id, policy_id, index, allocated_at, _, state, amounts,
        preemptible, started_at, walltime, lease_until, deadline, told, taken_for, reason, ended_at,
        members, hints, _, _, lost,
    ) = row  # fmt: skip
    told_of = node_rows.hints_from(hints, attempt)
    return _allocation(
        allocation_id(request_id, attempt),
        request_id,
        intern(pool_id),
        intern(policy_id),
        _amounts_from(amounts),
        bool(preemptible),
        attempt,
        index,
        allocated_at,
        _STATE[state],
        started_at,
        walltime,
        lease_until,
        deadline,
        bool(told),
        taken_for,
        None if reason is None else _reason_from(reason),
        ended_at,
        node_rows.members_from(members),
        told_of["stop_progress"],
        told_of["asked"],
        told_of["announced"],
        lost or 0,
        told_of["resume"],
    )


def event_row(event: Event) -> Row:
    data = encode(event.data) if event.data else None
    return (event.index, event.at, event.kind, event.request_id, event.pool_id, data)


def event_from(row: Sequence[Any]) -> Event:
    index, at, kind, request_id, pool_id, data = row
    return Event(index, at, kind, request_id, pool_id, decode(data) if data else {})


def token_row(token: Token) -> Row:
    return (
        token.id,
        token.name,
        str(token.role),
        subjects_text(token.subjects),
        token.hash,
        token.created,
        token.expires_at_wall,
        token.revoked,
        token.uses,
    )


def subjects_text(subjects: Sequence[Subject]) -> str:
    return encode([[subject.type, subject.name] for subject in subjects])


def token_from(row: Sequence[Any]) -> Token:
    id_, name, role, subjects, hash_, created, expires, revoked, uses = row
    return Token(
        id=id_,
        name=name,
        role=Role.parse(role),
        subjects=tuple(Subject(*each) for each in decode(subjects)),
        hash=hash_,
        created=created,
        expires_at_wall=expires,
        revoked=bool(revoked),
        uses=uses,
    )


def answer_row(answer: Remembered) -> Row:
    of = answer.idempotency
    return (answers.digest(of.place), of.body_hash, answers.pack(answer.response), answer.at)


def answer_from(row: Sequence[Any], of: Idempotency) -> Remembered:
    """The answer under a key, with the body that it answered."""
    _, body_hash, response, at = row
    return Remembered(replace(of, body_hash=body_hash), answers.unpack(response), at)


def audit_row(entry: AuditEntry) -> Row:
    note = entry.note
    detail = canonical(note.detail)
    return (
        entry.number, note.created, note.actor, note.action, note.target, detail, entry.previous,
        entry.hash,
    )  # fmt: skip


def audit_from(row: Sequence[Any]) -> AuditEntry:
    number, created, actor, action, target, detail, previous, hash_ = row
    note = AuditNote(created, actor, action, target, decode(detail))
    return AuditEntry(number, note, previous, hash_)


def _amounts(amounts: Mapping[str, int]) -> str:
    return _shape(tuple(amounts.items()))


@lru_cache(maxsize=4_096)
def _shape(items: tuple[tuple[str, int], ...]) -> str:
    """The text of a demand; demands are many and their shapes few, so each is made once."""
    return encode(dict(items))


# Requests are many, their subjects, amounts and terms few: equal ones share a value.
_subject = lru_cache(maxsize=4_096)(Subject)
_amounts_from: Callable[[str], dict[str, int]] = lru_cache(maxsize=4_096)(decode)
_terms_from = lru_cache(maxsize=4_096)(term_rows.terms_from)


def _reason(reason: Reason | None) -> str | None:
    return encode({"code": reason.code.value, **reason.detail}) if reason else None


def _reason_from(text: str | None) -> Reason | None:
    return Reason.from_dict(decode(text)) if text else None


def _retry(retry: Retry) -> str | None:
    return None if retry == _DEFAULT_RETRY else encode(array_of(retry))


def _retry_from(text: str | None) -> Retry:
    return _DEFAULT_RETRY if text is None else from_array(Retry, decode(text))
